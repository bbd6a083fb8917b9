package authority

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rung-dev/rung"
)

func authority(t testing.TB) *CA {
	t.Helper()
	ca, err := New("sbx-test")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func pool(t testing.TB, ca *CA) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(ca.PEM()) {
		t.Fatal("the PEM holds no certificate")
	}
	return p
}

func TestLeafIsAcceptedForItsNameOnly(t *testing.T) {
	ca := authority(t)
	leaf, err := ca.Leaf("API.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"api.example.com": true, "example.com": false, "www.api.example.com": false} {
		_, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool(t, ca)})
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool(t, authority(t))}); err == nil {
		t.Error("another sandbox accepts the certificate")
	}
	c := ca.Certificate()
	if !c.IsCA || c.MaxPathLen != 0 || !c.MaxPathLenZero || leaf.Leaf.IsCA {
		t.Errorf("authority %+v", c)
	}
	if leaf.Leaf.NotAfter.After(c.NotAfter) || leaf.Leaf.NotBefore.Before(c.NotBefore) {
		t.Error("the certificate outlives its authority")
	}
	if d := time.Until(c.NotAfter); d > life || d < life-time.Minute {
		t.Errorf("the authority lives %v", d)
	}
}

func TestLeafHandshakes(t *testing.T) {
	ca := authority(t)
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() {
		conn := tls.Server(server, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return ca.Leaf(h.ServerName)
		}})
		done <- conn.Handshake()
	}()
	if err := tls.Client(client, &tls.Config{ServerName: "a.example", RootCAs: pool(t, ca)}).Handshake(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLeafRefusesWhatIsNoName(t *testing.T) {
	ca := authority(t)
	for _, name := range []string{"", "*.example", "127.0.0.1", "::1", "a..b", "a.example.", "a b", "a\x00b", "0x7f000001"} {
		if _, err := ca.Leaf(name); rung.KindOf(err) != rung.KindInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestLeafIsMadeOnceAndBounded(t *testing.T) {
	ca := authority(t)
	got := make([]*tls.Certificate, 32)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], _ = ca.Leaf("a.example") })
	}
	wg.Wait()
	for _, c := range got {
		if c == nil || c != got[0] {
			t.Fatal("one name, several certificates")
		}
	}
	for i := range maxLeaves {
		if _, err := ca.Leaf(fmt.Sprintf("h%d.example", i)); err != nil {
			t.Fatal(err)
		}
		if i == maxLeaves/2 {
			_, _ = ca.Leaf("a.example") // keeps it among the recent ones
		}
	}
	if len(ca.leaves) != maxLeaves || ca.recent.Len() != maxLeaves {
		t.Errorf("%d and %d certificates are kept", len(ca.leaves), ca.recent.Len())
	}
	if again, _ := ca.Leaf("a.example"); again != got[0] {
		t.Error("a certificate in use was dropped")
	}
	if _, kept := ca.leaves["h0.example"]; kept {
		t.Error("the oldest certificate was not dropped")
	}
	ca.Close()
	if _, err := ca.Leaf("a.example"); rung.KindOf(err) != rung.KindConflict {
		t.Errorf("after Close: %v", err)
	}
}

func BenchmarkLeaf(b *testing.B) {
	ca := authority(b)
	b.Run("new", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := ca.Leaf(fmt.Sprintf("h%d.example", i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			_, _ = ca.Leaf("a.example")
		}
	})
}
