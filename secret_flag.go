package rung

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

const secretForm = "NAME@HOST[,HOST…][:header=Authorization,format=Bearer {}], further options: basic, query, body, sigv4=SERVICE/REGION"

// ParseSecretFlag reads the argument of --secret: NAME@HOST[,HOST…][:OPTION,…].
func ParseSecretFlag(text string) (SecretBinding, error) {
	if len(text) > 16<<10 {
		return SecretBinding{}, Errorf(KindInvalid, "--secret: too long")
	}
	name, rest, ok := strings.Cut(text, "@")
	if !ok { // not repeated: it may be a value
		return SecretBinding{}, Errorf(KindInvalid, "--secret names no host that the secret may be sent to").WithHint(secretForm)
	}
	if err := ValidSecretName(name); err != nil {
		return SecretBinding{}, Errorf(KindInvalid, "--secret: %w", err).WithHint(secretForm)
	}
	hosts, options, has := strings.Cut(rest, ":")
	b := SecretBinding{Name: name, Hosts: strings.Split(hosts, ",")}
	if has {
		if err := b.options(options); err != nil {
			return SecretBinding{}, Errorf(KindInvalid, "--secret %s: %w", name, err).WithHint(secretForm)
		}
	}
	if err := b.Validate(); err != nil {
		return SecretBinding{}, err
	}
	return b, nil
}

func (b *SecretBinding) options(text string) error {
	seen := map[string]bool{}
	for option := range strings.SplitSeq(text, ",") {
		key, value, valued := strings.Cut(option, "=")
		if seen[key] {
			return Errorf(KindInvalid, "option %q is given twice", key)
		}
		seen[key] = true
		flag := map[string]*bool{"basic": &b.Basic, "query": &b.Query, "body": &b.Body}[key]
		switch {
		case flag != nil && !valued:
			*flag = true
		case key == "header" && value != "":
			b.Header = value
		case key == "format" && value != "":
			b.Format = value
		case key == "sigv4" && valued:
			service, region, ok := strings.Cut(value, "/")
			if !ok {
				return Errorf(KindInvalid, "sigv4 is written SERVICE/REGION, such as s3/eu-central-1")
			}
			b.SigV4 = &SigV4{Service: service, Region: region}
		default:
			return Errorf(KindInvalid, "option %q is not known, lacks its value or has one too many", key)
		}
	}
	return nil
}

// Validate refuses a binding that means nothing or two things at once.
func (b SecretBinding) Validate() error {
	if err := ValidSecretName(b.Name); err != nil {
		return err
	}
	if err := b.validate(); err != nil {
		return Errorf(KindInvalid, "secret %s: %w", b.Name, err).WithHint(secretForm)
	}
	return nil
}

func (b SecretBinding) validate() error {
	if len(b.Hosts) == 0 || len(b.Hosts) > MaxSecretHosts {
		return Errorf(KindInvalid, "%d hosts, not 1 to %d", len(b.Hosts), MaxSecretHosts)
	}
	for i, h := range b.Hosts {
		if err := validSecretHost(h); err != nil {
			return err
		}
		if slices.Contains(b.Hosts[:i], h) {
			return Errorf(KindInvalid, "host %s is named twice", h)
		}
	}
	if s := b.SigV4; s != nil {
		if b.Header != "" || b.Format != "" || b.Basic || b.Query || b.Body {
			return Errorf(KindInvalid, "sigv4 signs the request and sends the value nowhere, so it takes no other option")
		}
		if !scopeWord(s.Service) || !scopeWord(s.Region) {
			return Errorf(KindInvalid, "sigv4 is written SERVICE/REGION, such as s3/eu-central-1")
		}
		return nil
	}
	return b.validHeader()
}

func (b SecretBinding) validHeader() error {
	if b.Header == "" {
		if b.Format != "" {
			return Errorf(KindInvalid, "format needs header")
		}
		return nil
	}
	if b.Basic {
		return Errorf(KindInvalid, "header and basic exclude each other")
	}
	if len(b.Header) > 128 || strings.ContainsFunc(b.Header, notTokenRune) {
		return Errorf(KindInvalid, "header %q is no name of an HTTP header", b.Header)
	}
	// The gate writes these itself: one that a binding sets would change what request is sent, not who sends it.
	framing := []string{"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect", "proxy-connection"}
	if slices.Contains(framing, strings.ToLower(b.Header)) {
		return Errorf(KindInvalid, "header %s frames the request and cannot carry a secret", b.Header)
	}
	if b.Format != "" && (strings.Count(b.Format, "{}") != 1 || len(b.Format) > 256 || strings.ContainsFunc(b.Format, notPrintable) ||
		strings.Contains(b.Format, ",")) {
		return Errorf(KindInvalid, "format must have {} exactly once, and besides only printable ASCII without a comma")
	}
	return nil
}

// notTokenRune is what is not tchar of RFC 9110, section 5.6.2.
func notTokenRune(r rune) bool {
	alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func notPrintable(r rune) bool { return r < ' ' || r > '~' }

// scopeWord keeps service and region to what AWS uses; both become part of a header.
func scopeWord(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// validSecretHost takes names only: a value goes where a certificate proves the name. The gate's rules look closer.
func validSecretHost(h string) error {
	name, wild := strings.CutPrefix(h, "*.")
	labels := strings.Split(name, ".")
	bad := name == "" || len(name) > 253 || wild && len(labels) < 2
	for _, l := range labels {
		bad = bad || l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-'
		for _, c := range []byte(l) {
			bad = bad || (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
		}
	}
	last := labels[len(labels)-1]
	if bad || last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return Errorf(KindInvalid, "host %q: an exact name or *.suffix of two labels at least, in lower case and ASCII, without a port; no address", h)
	}
	return nil
}

// AWSCredentials are the key pair that signs AWS requests.
type AWSCredentials struct {
	KeyID   string
	Secret  SecretValue
	Session SecretValue // token of temporary credentials, or empty
}

// ParseAWSCredentials reads ID:SECRET[:SESSION], or the JSON object that credential helpers of the AWS tools print
// (AccessKeyId, SecretAccessKey, SessionToken). The error repeats nothing of it.
func ParseAWSCredentials(value SecretValue) (AWSCredentials, error) {
	var c AWSCredentials
	if trimmed := bytes.TrimSpace(value); bytes.HasPrefix(trimmed, []byte("{")) {
		var doc struct{ AccessKeyID, SecretAccessKey, SessionToken string }
		if json.Unmarshal(trimmed, &doc) == nil {
			c = AWSCredentials{doc.AccessKeyID, SecretValue(doc.SecretAccessKey), SecretValue(doc.SessionToken)}
		}
	} else if parts := bytes.SplitN(trimmed, []byte(":"), 3); len(parts) >= 2 {
		c.KeyID, c.Secret = string(parts[0]), SecretValue(parts[1])
		if len(parts) == 3 {
			c.Session = SecretValue(parts[2])
		}
	}
	id := c.KeyID != "" && len(c.KeyID) <= 128 && strings.Trim(c.KeyID, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
	if !id || len(c.Secret) == 0 || bytes.ContainsFunc(c.Secret, notPrintable) || bytes.ContainsFunc(c.Session, notPrintable) {
		return AWSCredentials{}, Errorf(KindInvalid, "the value is no AWS key pair").
			WithHint("ID:SECRET or ID:SECRET:SESSION, or what `aws configure export-credentials` prints")
	}
	return c, nil
}
