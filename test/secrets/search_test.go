//go:build linux

package secrets

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// value makes a secret that nobody had before, of characters that each spelling changes.
func value() string { return `k/+=&%"\ 'x` + rand.Text() + `~?` + strings.ToLower(rand.Text()) }

// spellings are the forms in which a value is searched for.
func spellings(value string) map[string]string {
	quoted, _ := json.Marshal(value) // strings always encode
	all := map[string]string{
		"plain": value, "query": url.QueryEscape(value), "path": url.PathEscape(value), "json": strings.Trim(string(quoted), `"`),
	}
	for shift := range 3 { // what base64 has of it whatever stands beside it
		for name, alphabet := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			text := alphabet.EncodeToString(append(make([]byte, shift), value...))
			all[name+"+"+string(rune('0'+shift))] = text[2:][:len(text)-6]
		}
	}
	return all
}

type needle struct {
	Name string `json:"name"`
	Len  int    `json:"len"`
	Roll uint64 `json:"roll"`
	Sum  string `json:"sum"`
}

// needles are what the program inside may know of values: nothing that it could find in itself.
func needles(named map[string]string) (list []needle) {
	for name, text := range named {
		n := needle{Name: name, Len: len(text)}
		for _, c := range []byte(text)[:16] {
			n.Roll = n.Roll*1099511628211 + uint64(c) + 1
		}
		sum := sha256.Sum256([]byte(text))
		n.Sum = hex.EncodeToString(sum[:])
		list = append(list, n)
	}
	return list
}

// holds tells in which spellings a text has a value.
func holds(text []byte, value string) (list []string) {
	for name, s := range spellings(value) {
		if bytes.Contains(text, []byte(s)) {
			list = append(list, name)
		}
	}
	return list
}

func decode(text string) string {
	raw, _ := base64.StdEncoding.DecodeString(text)
	return string(raw)
}
