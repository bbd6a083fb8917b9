// Package driver is the contract between rung and the code that builds walls.
//
// # The life of a sandbox
//
// A caller first asks Info (constant facts) and Check (can this host do it). It then calls Create with a Spec: the driver
// builds the wall, starts rung-guest inside it, and returns an Instance once the guest has answered on its control channel;
// no user code has run yet. The caller verifies what is really enforced (rung.Expectation against what the guest measured
// and what Inspector tells), runs what it wants through connections from Dial, and calls Destroy. Nothing of a sandbox
// outlives Destroy, and a sandbox is never used twice.
//
// # Who owns what
//
// Each sandbox has one holder: a small process outside the wall that keeps the control descriptors, enforces the wall
// clock, receives denied system calls, and is the root of the sandbox's process tree, so that its end is the sandbox's end
// whatever became of the client. With Spec.Owned the holder ends when the process that called Create ends; without, it
// stays until Destroy or the wall clock, and Adopt takes it over after a restart of the caller.
//
// # Rules for every method
//
//   - Create returns only when the guest answers; on an error nothing is left behind, and the error's kind says whether the
//     request was wrong (rung.KindInvalid), the host cannot (KindUnavailable) or the wall is not as asked (KindUnverified).
//   - Destroy is idempotent, complete and bounded: after it returns nil no process, cgroup, mount, namespace, descriptor or
//     directory of the sandbox exists. It works on a sandbox in any state, also one whose holder was killed.
//   - Wait blocks until the sandbox has ended or the context is done, and tells how it ended as seen from outside.
//   - Everything that may block takes a context first and returns soon after it is done.
//   - Events go to Spec.Events from a goroutine of the driver; a sink must not block for long, and gets no event after
//     Destroy has returned.
//   - A driver never downgrades: what it cannot do as asked it refuses, with the reason and the remedy in the error's hint.
//
// Optional abilities are one-purpose interfaces (Inspector and Meter now; pause, snapshot and fork later) mirrored in
// Info.Abilities; drivertest fails a driver whose words and methods differ. Policy, secrets, images and audit are never a
// driver's business.
package driver

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"time"

	"github.com/rung-dev/rung"
)

// Driver makes sandboxes of one rung. All methods may be called from several goroutines at once.
type Driver interface {
	// Info returns constant facts; it does no I/O.
	Info() Info
	// Check asks whether this host can build the rung now. It may run programs and is bounded by ctx. A nil error means
	// yes; else the error's text says why not and its hint what would change it. Version is filled in either way where it
	// could be found out.
	Check(ctx context.Context) (Status, error)
	// Create builds one sandbox; see the package comment.
	Create(ctx context.Context, spec Spec) (Instance, error)
	// Adopt takes over a live sandbox from the handle that an Instance of this driver gave out, possibly in another
	// process. KindNotFound when its holder is gone; then Sweep (internal/session) has its remains.
	Adopt(ctx context.Context, handle Handle, events func(Event)) (Instance, error)
}

// Instance is one live (or ended) sandbox.
type Instance interface {
	// Handle is what Adopt needs: small, versioned JSON without secrets.
	Handle() Handle
	// Dial opens a new connection to the guest's HTTP server. Several may be open at once. KindConflict after the end.
	Dial(ctx context.Context) (net.Conn, error)
	// Wait blocks until the sandbox has ended and says how; ctx.Err() if the context ends first.
	Wait(ctx context.Context) (End, error)
	// Destroy ends the sandbox and removes everything of it.
	Destroy(ctx context.Context) error
}

// Inspector is the optional ability to tell host-side facts of a live sandbox.
type Inspector interface {
	// Inspect measures from the host: it fills the fields of rung.Isolation that only the host knows (namespaces, caps of
	// the cgroup, and what else it can check on the init process) and names them in Sources.
	Inspect(ctx context.Context) (*rung.Isolation, error)
}

// Meter is the optional ability to tell what a live sandbox uses.
type Meter interface {
	// Usage measures now, from the host.
	Usage(ctx context.Context) (Usage, error)
}

// Usage is what a sandbox uses on the host.
type Usage struct {
	Memory int64 // bytes, proportional set size (proc_pid_smaps(5)) of all its processes, runtime and holder
	Own    int64 // of that, rung's own processes: holder and guest
}

// Ability names an optional interface in Info.
type Ability string

// The abilities and the interface each stands for.
const (
	CanInspect Ability = "inspect" // Inspector
	CanMeter   Ability = "meter"   // Meter
)

// Info are the constant facts of a driver.
type Info struct {
	Name      string    // such as "oci"
	Rung      rung.Rung // the tier it builds
	Abilities []Ability
}

// Status is what Check found on this host.
type Status struct {
	Version string   // the runtime's own words, "" when there is no runtime
	Notes   []string // what is weaker here than the rung can be elsewhere, in words, such as missing separate uids
	Limits  []string // limits this host cannot enforce, each with the reason and the remedy
}

// Spec is everything a driver needs to build one sandbox. The zero value of a field means its absence, never a default.
type Spec struct {
	ID       string // rung.ValidName, unique among live sandboxes; names every artefact
	Template Template
	Limits   rung.Limits
	Env      []string // environment of rung-guest's children, "K=V"
	Owned    bool     // the sandbox ends when the calling process ends
	// WallClock bounds the sandbox's whole life, counted from the guest's first answer; the holder enforces it. 0 = none
	// (only for callers with a reaper of their own).
	WallClock time.Duration
	// Link is the sandbox's way out, made by the caller; nil = no interface but loopback exists.
	Link *Link
	// Files are shown read-only inside, over whatever the template has there. The paths exist in every template.
	Files []File
	// Events receives denied system calls and notices. May be nil.
	Events func(Event)
}

// Template is a prepared root file system on this host (see internal/image): a directory with the mount points the drivers
// need (/proc, /sys, /dev, /tmp, /work, /home/user, /.rung/guest), never written to by a sandbox.
type Template struct {
	Name   string
	Digest string // names the content; the same digest is the same tree
	Root   string // absolute path of the root directory
	Binds  []Bind // further read-only trees to show in it
	// OwnerBase is the host id that stands for root in the tree below Root: file owners OwnerBase+n show as n inside where
	// the driver can map them.
	OwnerBase uint32
}

// Link is one end of the gate's link for one sandbox (see internal/gate): the driver's holder makes an interface or, where the
// rung has none, a proxy's socket in the sandbox's network namespace before the sandbox starts, hands its descriptor over
// by Gate, and keeps Gate open for as long as the sandbox lives.
type Link struct {
	Gate *os.File // a connected Unix socket; the caller closes its own copy after Create
}

// File is a small file that one sandbox sees, such as its resolver's address.
type File struct {
	Path string // absolute, inside
	Data []byte
}

// Bind shows the host path Source read-only, nosuid and nodev at Target inside. Sub-mounts of Source are not shown.
type Bind struct {
	Source, Target string
	OwnerBase      uint32 // as Template.OwnerBase
}

// Handle is the stored form of an Instance.
type Handle struct {
	Driver  string `json:"driver"` // Info.Name
	Version int    `json:"version"`
	ID      string `json:"id"`
	Dir     string `json:"dir"` // the sandbox's runtime directory
}

// End says how a sandbox ended, as seen from outside.
type End struct {
	Reason rung.ExitReason // Exited, OOM, TimedOut, Killed or Failed
	Detail string          // one sentence for the log, such as the runtime's last error line
	OOM    bool            // the kernel killed something inside for memory, whether or not the sandbox ended by it
}

// Event is something the driver saw. Exactly one field is set.
type Event struct {
	Denied *rung.Denied // Count is the number of attempts since the last event of the same call
	Notice string       // a console or runtime line
}

// Expecter is implemented by every driver of a real wall: what it promises for a spec, to be compared with the measurement.
// A driver without promises (none, fake) does not implement it.
type Expecter interface {
	Expect(spec Spec) rung.Expectation
}

// Seer tells what refusals the rung makes visible; see rung.Visibility.
type Seer interface {
	Visibility() rung.Visibility
}

// Measured is an Instance whose Create asked the guest for its measurement as the first thing it answered: a round trip less
// for the caller. What is in it is the guest's business (GET /rung/v1/measure); no user code had run.
type Measured interface {
	Measured() json.RawMessage
}

// Limited is an Instance that may run without some of its limits, because its Spec accepted that (Limits.Best).
type Limited interface {
	// Unenforced are the limits that this sandbox does not have, each with the reason; nil when all are enforced.
	Unenforced() []string
}
