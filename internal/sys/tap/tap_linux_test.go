package tap_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/internal/sys/tap"
)

const inside = "RUNG_TEST_INSIDE"

// inNamespace runs the calling test again as the only process of a new network namespace, where it may make interfaces
// and from where nothing can leave. It returns true inside.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	if err := tap.Usable(); err != nil {
		t.Skipf("no TAP on this host: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("inside: %v\n%s", err, out)
	}
	return false
}

func TestTheLinkIsConfiguredWithoutOneFrame(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f, err := tap.Open(tap.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v6, err := tap.Configure(tap.Name)
	if err != nil || !v6 {
		t.Fatalf("v6 %v, %v", v6, err)
	}
	ifi, err := net.InterfaceByName(tap.Name)
	if err != nil {
		t.Fatal(err)
	}
	mac := tap.GuestMAC()
	if ifi.MTU != tap.MTU || ifi.HardwareAddr.String() != net.HardwareAddr(mac[:]).String() || ifi.Flags&net.FlagUp == 0 {
		t.Errorf("interface %+v", ifi)
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range addrs {
		got = append(got, a.String())
	}
	if want := tap.GuestV4().String() + "/30 " + tap.GuestV6().String() + "/126"; strings.Join(got, " ") != want {
		t.Errorf("addresses %v, want %s", got, want)
	}

	// Both families reach anything by way of the gate's Ethernet address, at once and without asking.
	for _, to := range []string{"198.51.100.7:9", "[2001:db8::7]:9", tap.GatewayV4().String() + ":9", "[" + tap.GatewayV6().String() + "]:9"} {
		c, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.Close()
		frame := make([]byte, 2048)
		if err := f.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := f.Read(frame)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		gw := tap.GatewayMAC()
		if n < tap.HeaderLen || [6]byte(frame[:6]) != gw || [6]byte(frame[6:12]) != mac {
			t.Fatalf("%s: the first frame is not the datagram to the gate: % x", to, frame[:min(n, 60)])
		}
	}
	// Nothing else comes, for longer than a kernel's router solicitation and MLD report would take.
	if err := f.SetReadDeadline(time.Now().Add(1500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 2048)
	if n, err := f.Read(frame); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frame nobody asked for: % x, %v", frame[:n], err)
	}
	out, err := exec.Command("ip", "-j", "neigh", "show", "dev", tap.Name).Output()
	var neigh []struct {
		Dst   string
		State []string
	}
	if err == nil {
		err = json.Unmarshal(out, &neigh)
	}
	t.Logf("neighbours %+v, %v", neigh, err)
}

func TestOpenRefusesWhatIsNoName(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, name := range []string{"a-name-that-is-too-long", "a/b"} {
		if f, err := tap.Open(name); err == nil {
			f.Close()
			t.Errorf("%q was made", name)
		}
	}
	if _, err := tap.Configure("missing0"); err == nil {
		t.Error("configured what does not exist")
	}
}

func TestTheLinkWithoutIPv6(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	// /proc/sys/net is of the namespace of the thread that reads it.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
		t.Skipf("IPv6 cannot be switched off here: %v", err)
	}
	f, err := tap.Open(tap.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v6, err := tap.Configure(tap.Name); err != nil || v6 {
		t.Errorf("v6 %v, %v", v6, err)
	}
}

func BenchmarkOpenAndConfigure(b *testing.B) {
	if os.Getenv(inside) == "" {
		b.Skip("run in a network namespace of its own with " + inside + " set")
	}
	for b.Loop() {
		// The removal of an interface waits for the kernel's grace periods and is no part of a start.
		f, err := tap.Open(tap.Name)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tap.Configure(tap.Name); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		f.Close()
		b.StartTimer()
	}
}
