package gate

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
	"github.com/rung-dev/rung/internal/gate/secret"
)

const (
	pair        = "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:session-token-of-the-pair"
	placeholder = "rung-secret-abcdefghijklmnopqrstuvwxyz234567"
)

func lent(end time.Time) rung.Lease {
	now := time.Now()
	return rung.Lease{
		Sandbox: "s1", Issued: now, Expires: end,
		Secrets: []rung.LeasedSecret{
			{SecretBinding: rung.SecretBinding{Name: "KEY", Hosts: []string{"api.example"}}, Placeholder: placeholder, Value: rung.SecretValue("a value of a secret")},
			{
				SecretBinding: rung.SecretBinding{Name: "AWS", Hosts: []string{"*.aws.example"}, SigV4: &rung.SigV4{Service: "s3", Region: "eu-central-1"}},
				Placeholder:   placeholder[:len(placeholder)-1] + "2", Value: rung.SecretValue(pair),
			},
		},
		Identity: []rung.LeasedIdentity{{Audience: "aud", Tokens: []rung.IdentityToken{{From: now.Add(-time.Second), Until: now.Add(time.Hour), Token: rung.SecretValue("head.body.signature")}}}},
	}
}

func leasing() *session {
	s := &session{id: "s1", swap: secret.New()}
	s.leases.expect([]rung.SecretBinding{{}}, rung.Egress{})
	return s
}

func TestLease(t *testing.T) {
	s := leasing()
	if err := s.leases.ready(); rung.KindOf(err) != rung.KindRefused {
		t.Errorf("before: %v", err)
	}
	l := lent(time.Now().Add(time.Hour))
	if err := s.lend(rung.Lease{Sandbox: "s2"}); rung.KindOf(err) != rung.KindInvalid {
		t.Errorf("another's: %v", err)
	}
	if err := s.lend(l); err != nil {
		t.Fatal(err)
	}
	if err := s.leases.ready(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(l.Secrets[0].Value, make([]byte, len(l.Secrets[0].Value))) {
		t.Error("a value that only the swap needs is kept twice")
	}
	one, none := s.leases.signer("s3.aws.example"), s.leases.signer("api.example")
	token, err := s.identity("aud", "who.example")
	if one == nil || string(one.Value) != pair || none != nil || err != nil || string(token) != "head.body.signature" || !s.swap.Masks("who.example") {
		t.Fatalf("%v, %v, %v", one, none, err)
	}
	if !s.swap.Masks("s3.aws.example") {
		t.Error("the session of the key pair is not masked")
	}
	s.drop()
	s.drop()
	if string(one.Value) != pair || string(token) != "head.body.signature" {
		t.Error("what was given out is not a copy")
	}
	if l.Secrets[1].Value[0] != 0 || l.Identity[0].Tokens[0].Token[0] != 0 {
		t.Error("values outlive the lease")
	}
	if err := s.leases.ready(); err == nil || s.leases.signer("s3.aws.example") != nil {
		t.Error("something passes after the end")
	}
	late := lent(time.Now().Add(time.Hour))
	if err := s.lend(late); rung.KindOf(err) != rung.KindConflict || late.Secrets[1].Value[0] != 0 {
		t.Errorf("lent after the end: %v", err)
	}
}

func TestLeaseExpires(t *testing.T) {
	s := leasing()
	l := lent(time.Now())
	if err := s.lend(l); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; { // the timer's goroutine drops it
		s.leases.mu.Lock()
		ended := s.leases.ended
		s.leases.mu.Unlock()
		if ended {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the values outlive their time")
		}
	}
}

// TestLeaseEndsUnderItsUsers is for the race detector.
func TestLeaseEndsUnderItsUsers(t *testing.T) {
	s := leasing()
	if err := s.lend(lent(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if one := s.leases.signer("s3.aws.example"); one != nil {
					if _, err := rung.ParseAWSCredentials(one.Value); err != nil {
						t.Error(err)
					}
				}
				if token, err := s.identity("aud", "who.example"); err == nil && token[0] != 'h' {
					t.Errorf("%q", []byte(token))
				}
			}
		})
	}
	all.Go(s.drop)
	all.Wait()
}

func TestBindHosts(t *testing.T) {
	secrets := []rung.SecretBinding{{Name: "K", Hosts: []string{"api.example"}}}
	e := rung.Egress{Mode: rung.EgressDeny, Rules: []rung.EgressRule{{Host: "*.example"}, {Host: "api.example", Ports: []int{8443}}, {Host: "api.example", Protocol: "tcp"}}}
	if err := bind(&e, secrets); err != nil || len(e.Rules) != 4 || e.Rules[0].Host != "api.example" || len(e.Rules[0].Secrets) != 1 ||
		e.Rules[1].Secrets != nil || len(e.Rules[2].Secrets) != 1 || e.Rules[3].Secrets != nil {
		t.Errorf("%+v, %v", e.Rules, err)
	}
	e = rung.Egress{Mode: rung.EgressDeny, Rules: []rung.EgressRule{{Host: "other.example"}}}
	if err := bind(&e, secrets); rung.KindOf(err) != rung.KindInvalid || rung.HintOf(err) != "add --allow api.example" {
		t.Errorf("%v (%s)", err, rung.HintOf(err))
	}
	e = rung.Egress{Mode: rung.EgressOpen}
	if err := bind(&e, secrets); err != nil || len(e.Rules) != 1 || e.Rules[0].Host != "api.example" {
		t.Errorf("%+v, %v", e.Rules, err)
	}
}
