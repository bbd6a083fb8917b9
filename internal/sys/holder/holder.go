// Package holder is the small process that stands beside each sandbox, outside its wall.
//
// The client (a rung command or server) starts it with Start; it is the same program, re-executed under the name
// Name, and runs Main. It is the first process of a pid namespace of its own and the root of the sandbox's process tree:
// when it ends, for whatever reason, the kernel ends everything in the sandbox (pid_namespaces(7)), and its private mount
// namespace goes with it. So a sandbox can be killed by killing one process, and nobody has to trust a pid.
//
// It builds the wall (the driver's Build runs here, with the caller's privileges), starts the runtime, gives up its
// privileges, and then only keeps descriptors: the control channel to the guest, which it multiplexes for clients that
// connect to control.sock in the sandbox's directory; the seccomp listener, which it answers; the client's lifeline; and
// the locks by which others see that the sandbox is alive. It enforces the wall clock. It never looks into what flows
// between client and guest beyond the multiplexer's frame headers.
package holder

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"time"

	"github.com/rung-dev/rung"
)

// Name is argv[0] of a holder: programs that start sandboxes call Main first when Called reports true.
const Name = "rung-holder"

// Called reports whether this process was started as a holder.
func Called() bool { return len(os.Args) > 0 && os.Args[0] == Name }

// Order is what the client asks of a holder.
type Order struct {
	Kind       string        `json:"kind"` // selects the Build
	ID         string        `json:"id"`
	Dir        string        `json:"dir"`        // the sandbox's runtime directory
	Namespaces bool          `json:"namespaces"` // own pid and mount namespace; false only for rung none
	Owned      bool          `json:"owned"`      // end when the client's end of the lifeline closes
	WallClock  time.Duration `json:"wall_clock"` // from Ready; 0 = none
	DropUID    int           `json:"drop_uid"`   // uid and gid to become once the wall stands; 0 = stay
	// UIDs and GIDs are the id maps of the holder's own user namespace; empty = none is made (root).
	UIDs, GIDs []rung.IDMap
	Link       LinkKind        `json:"link"`     // what the gate gets; the last of Request.Keep is then the gate's link
	HideV2     bool            `json:"hide_v2"`  // hide the cgroup v2 mount of a hybrid layout (crun refuses it)
	Prepared   bool            `json:"prepared"` // the client's go-ahead follows: see Request
	Spec       json.RawMessage `json:"spec"`     // for the Build
}

// LinkKind is what the holder makes in the sandbox's network namespace and hands to the gate. It exists before the sandbox
// starts, or never.
type LinkKind string

// The kinds of link.
const (
	NoLink    LinkKind = ""      // no interface but loopback
	TAPLink   LinkKind = "tap"   // an Ethernet interface whose other end is the gate
	ProxyLink LinkKind = "proxy" // a listening socket on the loopback address that the gate answers as a proxy
)

// Request is everything Start needs.
type Request struct {
	Order Order
	// Keep are lock files the holder shares with the caller (flock(2) belongs to the open file, so the lock is held until
	// both have closed it). With Order.Link the gate's link comes last: it too is kept for the sandbox's life.
	Keep []*os.File
	// Prepare, if not nil, does the client's part of the work while the holder starts, since both take milliseconds. The
	// Build waits for its end (Workshop.Prepared).
	Prepare func(ctx context.Context) (Prepared, error)
	// Seed, if not nil, is a holder that was started ahead; Start uses it where it fits and ends it where not.
	Seed *Seed
	// Events is told of denied calls and notices, on a goroutine of the link, until Destroy returns. May be nil.
	Events func(denied *rung.Denied, notice string)
}

// Build builds one wall and returns the command whose process is the sandbox: when it ends, the sandbox has ended. It runs
// in the holder, before privileges are dropped. Mounts it makes need no undoing.
type Build func(w *Workshop) (*Wall, error)

// Prepared is what the client has prepared.
type Prepared struct {
	File   *os.File // for the Build, nil if none; Start closes it
	Cgroup bool     // the control group named for the sandbox exists: the runtime starts in it
}

// Workshop is what a Build works with.
type Workshop struct {
	Order
	// Control is the guest's end of the control channel, to be passed to the guest as an inherited descriptor.
	Control *os.File
	// Prepared waits for the end of the client's preparation and returns the file it yielded, nil if none.
	Prepared func() (*os.File, error)
}

// Wall is a finished wall, not yet started.
type Wall struct {
	Cmd *exec.Cmd
	// Notify, if not nil, is a bound Unix socket on which the runtime hands over the seccomp listener of the sandbox.
	Notify *os.File
	// Listener, if not nil, is called after the start and returns the seccomp listener itself.
	Listener func() (*os.File, error)
	// Explain turns the failed command's last output into an error; may be nil.
	Explain func(output string) error
}

// message is one line between holder and client, see appendTo.
type message struct {
	Ready  *ready        `json:"ready,omitempty"`
	Failed *rung.Failure `json:"failed,omitempty"`
	Denied *rung.Denied  `json:"denied,omitempty"`
	Notice string        `json:"notice,omitempty"`
	Ended  *Ended        `json:"ended,omitempty"`
	Op     string        `json:"op,omitempty"` // client to holder: opDestroy
}

type ready struct {
	Millis rung.Millis `json:"ms"` // from the holder's start to the runtime's start
}

// Ended is how the sandbox ended as the holder saw it.
type Ended struct {
	Reason rung.ExitReason `json:"reason"`
	Detail string          `json:"detail"`
	OOM    bool            `json:"oom"`
}

const (
	lifelineFD = 3 // the client's socket

	// socketName is where clients of a live sandbox connect: first byte 'G' makes the connection one to the guest's HTTP
	// server, 'H' one to the holder itself (lines of message).
	socketName = "control.sock"
)
