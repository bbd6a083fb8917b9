//go:build linux

// Package egress attacks the gate from inside every rung: each case tries to get something out of a sandbox, or into
// another, that no rule names. It runs as root, in a network namespace of its own in which every address there is belongs
// to the loopback interface: public and private ones, metadata services, other resolvers. Nothing can leave it, and
// whatever crosses is seen twice, by the stand-in it reaches and on the wire. Every case is tried on rung none first, where
// it must cross: else it proves nothing.
package egress

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rung-dev/rung/test/egress/rtnl"
)

const (
	// dirEnv is the folder of a run: programs, state, runtime directory.
	dirEnv = "RUNG_EGRESS_DIR"
	// binEnv names a folder with rung's programs; without it they are built.
	binEnv = "RUNG_BIN"
)

func TestMain(m *testing.M) {
	if os.Getenv(dirEnv) == "" && os.Getuid() == 0 {
		os.Exit(outside())
	}
	os.Exit(inside(m))
}

// outside builds what is needed and runs the tests in namespaces of their own.
func outside() int {
	dir, err := os.MkdirTemp("", "rung-e-") // short: socket paths have little room
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return fail(err)
	}
	if err := build(dir); err != nil {
		return fail(err)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // -test.timeout bounds it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), dirEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if _, ended := err.(*exec.ExitError); !ended { //nolint:errorlint // exactly that type
			return fail(err)
		}
		return 1
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "egress:", err)
	return 1
}

func build(dir string) error {
	list := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/", "./probe"}
	if os.Getenv(binEnv) == "" {
		list = append(list, "../../cmd/rung", "../../cmd/rung-guest", "../../cmd/rung-gate", "../../cmd/rung-image")
	}
	cmd := exec.Command("go", list...) //nolint:noctx // as above
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// inside makes the world, once, before the tests.
func inside(m *testing.M) int {
	if os.Getuid() != 0 {
		return m.Run() // each test says why it skips
	}
	w, err := makeWorld()
	if err != nil {
		return fail(err)
	}
	world = w
	code := m.Run()
	w.close()
	return code
}

// world is everything outside the sandboxes.
var world *theWorld

type theWorld struct {
	dir    string // of this run
	rung   string // the program
	nonce  string // in every token
	ca     authority
	wire   *wire
	stands *stands
	zone   *zone
	end    []func()
}

func needWorld(t *testing.T) *theWorld {
	t.Helper()
	if world == nil {
		t.Skip("needs root: a network namespace of its own with every address in it")
	}
	return world
}

func makeWorld() (w *theWorld, err error) {
	w = &theWorld{dir: os.Getenv(dirEnv)}
	w.rung = filepath.Join(w.dir, "rung")
	path := os.Getenv("PATH")
	if bin := os.Getenv(binEnv); bin != "" {
		w.rung = filepath.Join(bin, "rung")
		path = bin + ":" + path
	} else if bin, err := filepath.Abs("../../bin"); err == nil { // where make puts runsc
		path = path + ":" + bin
	}
	os.Setenv("PATH", path)
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	w.nonce = hex.EncodeToString(b[:])
	if err := w.network(); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if err := w.files(); err != nil {
		return nil, err
	}
	if w.wire, err = listenWire(w.nonce); err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	w.zone = &zone{asked: map[string]int{}}
	if w.stands, err = standIn(w); err != nil {
		return nil, fmt.Errorf("stand-ins: %w", err)
	}
	return w, nil
}

func (w *theWorld) close() {
	for _, v := range slices.Backward(w.end) {
		v()
	}
}

// network makes every address this namespace's own (AnyIP: a local route), so that nothing has anywhere else to go.
func (w *theWorld) network() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if err := rtnl.Up(lo.Index); err != nil {
		return err
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if err := rtnl.Local(netip.MustParsePrefix(all), lo.Index); err != nil {
			return fmt.Errorf("local %s: %w", all, err)
		}
	}
	for _, a := range []string{"203.0.113.10/32", "2001:db8::10/128", "fe80::5/64", "fe80::a9fe:a9fe/64"} {
		if err := rtnl.Address(lo.Index, netip.MustParsePrefix(a)); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	return rtnl.Via(netip.MustParsePrefix("224.0.0.0/4"), netip.Addr{}, lo.Index)
}

// files are what the gate and the control read of their host: its resolver and its authorities.
func (w *theWorld) files() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	for name, text := range map[string]string{
		"resolv.conf": "nameserver 127.0.0.1\n",
		"hosts":       "127.0.0.1 localhost\n10.1.2.9 hosts-private.test\n",
	} {
		from := filepath.Join(w.dir, name)
		if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(from, "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("/etc/%s: %w", name, err)
		}
	}
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	w.ca = ca
	bundle := filepath.Join(w.dir, "bundle.pem")
	os.Setenv("SSL_CERT_FILE", bundle)
	return os.WriteFile(bundle, ca.pem, 0o644)
}
