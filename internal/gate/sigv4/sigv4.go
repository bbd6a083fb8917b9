// Package sigv4 signs requests to AWS for a sandbox that has no key: the gate takes off whatever signature the sandbox made
// with its placeholder and puts its own in the place. The signature is made last, over what is really sent.
//
// Signed are Host, Content-Type, Content-MD5 and every X-Amz header, which is what AWS asks for, and not what a proxy on
// the way may touch.
package sigv4

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/rung-dev/rung"
)

const (
	// MaxBody is how much of a body is held to be hashed before anything of it is sent.
	MaxBody = 10 << 20

	// Unsigned stands for the hash of a body that only TLS protects; S3 takes it.
	Unsigned = "UNSIGNED-PAYLOAD"
	// unsignedTrailer is the same for a body in AWS's own chunks with checksums at its end.
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

	hashHeader = "X-Amz-Content-Sha256"
)

// signature are the headers, and the parameters of presigned URLs, that make a signature. Other X-Amz headers are part of
// what is asked for (X-Amz-Target, X-Amz-Acl) and stay.
var signature = []string{
	"Authorization", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Region-Set",
	"X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-Signedheaders", "X-Amz-S3session-Token", hashHeader,
}

// Signer signs. It keeps derived keys of recent days, so one per sandbox is enough, and it ends with the sandbox.
type Signer struct{ v4 *v4.Signer }

// New returns a Signer.
func New() *Signer {
	return &Signer{v4.NewSigner(func(o *v4.SignerOptions) { o.LogSigning = false })}
}

// Sign replaces whatever signature req has by one of the key pair. The body is read, up to MaxBody, where its hash is part
// of the signature; req then has a body to be sent in its place. A request with two meanings is refused.
func (s *Signer) Sign(ctx context.Context, req *http.Request, c rung.AWSCredentials, scope rung.SigV4, now time.Time) error {
	claimed := req.Header.Get(hashHeader)
	if err := Strip(req); err != nil {
		return err
	}
	s3 := scope.Service == "s3" || scope.Service == "s3-outposts" || scope.Service == "s3express"
	hash, err := payload(req, claimed, s3)
	if err != nil {
		return err
	}
	if s3 { // required there, and elsewhere only one more header
		req.Header.Set(hashHeader, hash)
	}
	// A request that has only what is signed, so that nothing else can be.
	bare := &http.Request{Method: req.Method, Host: req.Host, URL: clone(req), Header: http.Header{}}
	if bare.Host == "" {
		bare.Host = bare.URL.Host
	}
	for name, values := range req.Header {
		if signed(name) {
			bare.Header[name] = values
		}
	}
	key := aws.Credentials{AccessKeyID: c.KeyID, SecretAccessKey: string(c.Secret), SessionToken: string(c.Session)}
	err = s.v4.SignHTTP(ctx, key, bare, hash, scope.Service, scope.Region, now, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = s3 // S3 alone takes the path as it is sent
	})
	if err != nil {
		return rung.Errorf(rung.KindInternal, "sign the request: %w", err)
	}
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		if v := bare.Header[name]; len(v) > 0 {
			req.Header[name] = v
		}
	}
	req.URL.RawQuery = bare.URL.RawQuery // in the order that was signed
	req.Host = bare.Host                 // without the port where it goes without saying
	return nil
}

func signed(name string) bool {
	name = strings.ToLower(name)
	return name == "content-type" || name == "content-md5" || strings.HasPrefix(name, "x-amz-")
}

// Strip takes off what the sandbox signed, in headers and in the query.
func Strip(req *http.Request) error {
	for name := range req.Header {
		for _, s := range signature {
			if strings.EqualFold(name, s) {
				delete(req.Header, name)
			}
		}
	}
	if req.URL.RawQuery == "" {
		return nil
	}
	// What this parser takes for a separator and what AWS does must be the same.
	if strings.Contains(req.URL.RawQuery, ";") {
		return rung.Errorf(rung.KindRefused, "the query has a ';', which servers read in different ways")
	}
	var kept []string
	for pair := range strings.SplitSeq(req.URL.RawQuery, "&") {
		if drop, err := isSignature(pair); err != nil {
			return err
		} else if !drop {
			kept = append(kept, pair)
		}
	}
	req.URL.RawQuery = strings.Join(kept, "&")
	return nil
}

// payload returns the hash of the body, or what stands for it.
func payload(req *http.Request, claimed string, s3 bool) (string, error) {
	if strings.HasPrefix(claimed, "STREAMING-") && claimed != unsignedTrailer {
		return "", rung.Errorf(rung.KindRefused, "the body is in chunks that are signed one by one with a key, and the key is not in the sandbox").
			WithHint("switch the signing of payloads off in the client (payload_signing_enabled = false), or send a plain body")
	}
	tls := req.URL.Scheme == "https"
	if claimed == unsignedTrailer && !(s3 && tls) {
		return "", rung.Errorf(rung.KindRefused, "a body without a signature is for S3 over TLS only")
	}
	if claimed == unsignedTrailer {
		return claimed, nil
	}
	if s3 && tls {
		return Unsigned, nil
	}
	return hold(req)
}

// hold reads the body and puts it back.
func hold(req *http.Request) (string, error) {
	var data []byte
	if req.Body != nil && req.Body != http.NoBody {
		var err error
		data, err = io.ReadAll(io.LimitReader(req.Body, MaxBody+1))
		req.Body.Close() // only read from
		if err != nil {
			return "", rung.Errorf(rung.KindInvalid, "read the body: %w", err)
		}
		if len(data) > MaxBody {
			return "", rung.Errorf(rung.KindExhausted, "the body is longer than the %s that are held to be signed", rung.FormatBytes(MaxBody))
		}
		req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		if len(data) == 0 {
			req.Body = http.NoBody
		}
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
