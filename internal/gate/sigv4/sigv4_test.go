package sigv4

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

// The key pair, the time and the scope of the test suite that AWS published for this signature.
var (
	suiteKey   = rung.AWSCredentials{KeyID: "AKIDEXAMPLE", Secret: rung.SecretValue("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")}
	suiteTime  = time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	suiteScope = rung.SigV4{Service: "service", Region: "us-east-1"}
)

func request(t *testing.T, method, target, body string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return req
}

// expected is the signature by hand, from the request as it is sent: a second implementation that shares nothing with the
// first but AWS's description.
func expected(req *http.Request, hash string, key rung.AWSCredentials, scope rung.SigV4, now time.Time) string {
	canonical := req.Method + "\n"
	path := req.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	if scope.Service != "s3" { // escaped once more
		var b strings.Builder
		for _, c := range []byte(path) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/", c) >= 0:
				b.WriteByte(c)
			default:
				b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
			}
		}
		path = b.String()
	}
	canonical += path + "\n" + req.URL.RawQuery + "\n"
	names := []string{"host"}
	values := map[string]string{"host": req.Host}
	for name, v := range req.Header {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, "x-amz-") || name == "content-type" || name == "content-md5" {
			names = append(names, name)
			var trimmed []string
			for _, one := range v {
				trimmed = append(trimmed, strings.Join(strings.Fields(one), " "))
			}
			values[name] = strings.Join(trimmed, ",")
		}
	}
	slices.Sort(names)
	for _, n := range names {
		canonical += n + ":" + values[n] + "\n"
	}
	canonical += "\n" + strings.Join(names, ";") + "\n" + hash
	sum := sha256.Sum256([]byte(canonical))
	day := now.UTC().Format("20060102")
	credential := day + "/" + scope.Region + "/" + scope.Service + "/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + now.UTC().Format("20060102T150405Z") + "\n" + credential + "\n" + hex.EncodeToString(sum[:])
	k := []byte("AWS4" + string(key.Secret))
	for _, part := range []string{day, scope.Region, scope.Service, "aws4_request", text} {
		m := hmac.New(sha256.New, k)
		m.Write([]byte(part))
		k = m.Sum(nil)
	}
	return "AWS4-HMAC-SHA256 Credential=" + key.KeyID + "/" + credential + ", SignedHeaders=" + strings.Join(names, ";") + ", Signature=" + hex.EncodeToString(k)
}

func hashOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func sign(t *testing.T, req *http.Request, key rung.AWSCredentials, scope rung.SigV4) {
	t.Helper()
	if err := New().Sign(t.Context(), req, key, scope, suiteTime); err != nil {
		t.Fatal(err)
	}
}

// TestPublishedVector is get-vanilla of AWS's suite, whose signature is printed in its documentation.
func TestPublishedVector(t *testing.T) {
	req := request(t, "GET", "https://example.amazonaws.com/", "")
	sign(t, req, suiteKey, suiteScope)
	const want = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, " +
		"Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
	if got := req.Header.Get("Authorization"); got != want {
		t.Errorf("%s", got)
	}
	if by := expected(req, hashOf(""), suiteKey, suiteScope, suiteTime); by != want {
		t.Errorf("by hand: %s", by)
	}
}

func TestAgainstAnotherImplementation(t *testing.T) {
	session := suiteKey
	session.Session = rung.SecretValue("session+token/==")
	for name, c := range map[string]struct {
		method, target, body string
		headers              []string
		key                  rung.AWSCredentials
		scope                rung.SigV4
		hash                 string
	}{
		"query order":  {"GET", "https://example.amazonaws.com/?Param2=value2&Param1=b&Param1=a&x=a%2Fb&x=a-b&empty", "", nil, suiteKey, suiteScope, ""},
		"spaces":       {"GET", "https://example.amazonaws.com/a%20b/c%2Bd/%E1%88%B4?q=a+b%2Bc", "", nil, suiteKey, suiteScope, ""},
		"post":         {"POST", "https://example.amazonaws.com/", "Param1=value1", []string{"Content-Type", "application/x-www-form-urlencoded; charset=utf8"}, suiteKey, suiteScope, ""},
		"target":       {"POST", "https://dynamodb.eu-central-1.amazonaws.com/", "{}", []string{"X-Amz-Target", "DynamoDB_20120810.ListTables", "Content-Type", "application/x-amz-json-1.0", "User-Agent", "x", "Accept", "*/*"}, session, rung.SigV4{Service: "dynamodb", Region: "eu-central-1"}, ""},
		"two values":   {"GET", "https://example.amazonaws.com/", "", []string{"X-Amz-Meta-A", " one   two ", "X-Amz-Meta-A", "three"}, suiteKey, suiteScope, ""},
		"default port": {"GET", "https://example.amazonaws.com:443/x", "", nil, suiteKey, suiteScope, ""},
		"other port":   {"GET", "https://example.amazonaws.com:8443/x", "", nil, suiteKey, suiteScope, ""},
		"s3":           {"PUT", "https://bucket.s3.eu-central-1.amazonaws.com/a%20b/c+d/x%3Dy", "body", []string{"X-Amz-Acl", "private", "Content-Md5", "hBotaJrYa9FhAhF3bUVWcA=="}, session, rung.SigV4{Service: "s3", Region: "eu-central-1"}, Unsigned},
		"s3 plain":     {"PUT", "http://minio.example:9000/bucket/key", "body", nil, suiteKey, rung.SigV4{Service: "s3", Region: "us-east-1"}, ""},
		"s3 trailer": {
			"PUT", "https://b.s3.example.com/k", "4\r\nbody\r\n0\r\n\r\n",
			[]string{"X-Amz-Content-Sha256", unsignedTrailer, "X-Amz-Trailer", "x-amz-checksum-crc32", "Content-Encoding", "aws-chunked"},
			suiteKey,
			rung.SigV4{Service: "s3", Region: "us-east-1"},
			unsignedTrailer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, c.method, c.target, c.body, c.headers...)
			sign(t, req, c.key, c.scope)
			if c.hash == "" {
				c.hash = hashOf(c.body)
			}
			if got, want := req.Header.Get("Authorization"), expected(req, c.hash, c.key, c.scope, suiteTime); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if body, err := io.ReadAll(req.Body); err != nil || string(body) != c.body {
				t.Errorf("the body became %q, %v", body, err)
			}
			if got := req.Header.Get("X-Amz-Security-Token"); got != string(c.key.Session) {
				t.Errorf("session token %q", got)
			}
		})
	}
}

// TestForeignSignatureGoes: nothing that the sandbox signed survives, in whatever spelling; what asks for something stays.
func TestForeignSignatureGoes(t *testing.T) {
	req := request(t, "GET", "https://example.amazonaws.com/?X-Amz-Signature=bad&x-amz-credential=bad&X%2DAmz%2DSecurity-Token=bad&X-Amz-Date=bad&X-Amz-Expires=9&list-type=2&X-Amz-SignedHeaders=h", "",
		"Authorization", "AWS4-HMAC-SHA256 Credential=bad", "X-Amz-Security-Token", "bad", "X-Amz-Date", "bad", "X-Amz-Content-Sha256", "bad", "X-Amz-Acl", "kept")
	req.Header["x-amz-security-token"] = []string{"bad"}
	req.Header["authorization"] = []string{"bad"}
	sign(t, req, suiteKey, suiteScope)
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatal(err)
	}
	if text := wire.String(); strings.Contains(text, "bad") || !strings.Contains(text, "list-type=2") || !strings.Contains(text, "X-Amz-Acl: kept") {
		t.Errorf("%s", text)
	}
	if n := len(req.Header["Authorization"]); n != 1 {
		t.Errorf("%d authorizations", n)
	}
}

func TestRefusals(t *testing.T) {
	s3 := rung.SigV4{Service: "s3", Region: "r"}
	for name, c := range map[string]struct {
		req   *http.Request
		scope rung.SigV4
		kind  rung.Kind
	}{
		"signed chunks":       {request(t, "PUT", "https://b.example/k", "x", "X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), s3, rung.KindRefused},
		"trailer of another":  {request(t, "PUT", "https://b.example/k", "x", "X-Amz-Content-Sha256", unsignedTrailer), suiteScope, rung.KindRefused},
		"trailer without tls": {request(t, "PUT", "http://b.example/k", "x", "X-Amz-Content-Sha256", unsignedTrailer), s3, rung.KindRefused},
		"semicolon":           {request(t, "GET", "https://b.example/?a=1;X-Amz-Signature=2", ""), suiteScope, rung.KindRefused},
		"bad escape":          {request(t, "GET", "https://b.example/?X-Amz%2-Signature=2", ""), suiteScope, rung.KindRefused},
		"bad value":           {request(t, "GET", "https://b.example/?a=%zz", ""), suiteScope, rung.KindRefused},
		"long body":           {request(t, "POST", "https://b.example/", strings.Repeat("x", MaxBody+1)), suiteScope, rung.KindExhausted},
	} {
		if err := New().Sign(t.Context(), c.req, suiteKey, c.scope, suiteTime); rung.KindOf(err) != c.kind || strings.Contains(err.Error(), "MDENG") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := New().Sign(t.Context(), request(t, "PUT", "https://b.example/k", strings.Repeat("x", MaxBody+1)), suiteKey, s3, suiteTime); err != nil {
		t.Errorf("s3 over TLS streams: %v", err)
	}
}

func FuzzStrip(f *testing.F) {
	f.Add("a=b&X-Amz-Signature=1&%58-amz-date=2")
	f.Add("&&=&a;b")
	f.Fuzz(func(t *testing.T, query string) {
		req := &http.Request{Header: http.Header{}, URL: &url.URL{RawQuery: query}}
		if Strip(req) != nil {
			return
		}
		left, err := url.ParseQuery(req.URL.RawQuery)
		if err != nil {
			t.Errorf("%q: what is kept cannot be parsed: %v", query, err)
		}
		for name := range left {
			if slices.ContainsFunc(signature, func(s string) bool { return strings.EqualFold(s, name) }) {
				t.Errorf("%q: %q survives", query, name)
			}
		}
	})
}
