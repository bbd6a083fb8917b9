// Package seccomp gives the sandboxes their system call filters, and receives and answers the calls that a filter reports.
//
// # Filters
//
// A filter is compiled when code is generated (gen, from the policies in profile by the compiler in filter) and embedded as
// raw BPF for the machine's own architecture; at run time this package only hands bytes on:
//
//   - to our own guest, which installs them itself (Install), on the rung process;
//   - to crun, through an annotation (Annotation) and a seccomp section that holds only what is not in the filter
//     (CrunSection);
//   - to runc, which takes no raw filter, as JSON that it compiles with libseccomp at each start (RuncSection).
//
// # What was found out about the runtimes (crun 1.8.1, runc 1.1.5, libseccomp 2.5.4, Linux 6.18)
//
// crun takes the annotation instead of compiling the section's calls, but it reads the section's flags and listenerPath all
// the same, and refuses a section without a defaultAction. Without flags, and without a section, it asks the kernel for
// SECCOMP_FILTER_FLAG_SPEC_ALLOW, which lets the sandbox do without the mitigation of speculative store bypass; an empty
// list of flags avoids that, and is the only thing that does: TSYNC cannot be had together with a listener, LOG would let a
// sandbox write the host's log, and 1.8.1 knows no other. Both runtimes send the listener, and the container's state with
// it, to listenerPath before the container's program starts, also out of a user namespace; the state repeats the
// annotations, so it is some kilobytes long, and its pid is the one the runtime sees.
//
// Loading a filter of ours costs 0.2 ms (container: 0.4 ms). crun needs 30 ms longer with moby's profile as JSON than with
// its bytes, 5 ms with Hardened and 10 ms with HardenedNotify (whose refusals libseccomp needs some 200 rules for); a
// listener through crun costs 2 to 3 ms, because a helper process looks for it once a millisecond. What libseccomp 2.5.4
// makes of the JSON is the same as Filter for every call it knows; it does not know mseal, statmount, listmount, uprobe,
// uretprobe and lsm_*, which get the default, and crun adds no ENOSYS for what is above the profile (runc does).
//
// # Denied calls
//
// A profile with notification reports the calls in profile.Watched, to be answered by Supervise with EPERM. The allowed
// path pays nothing. While nobody holds the listener these calls fail with ENOSYS: a dead supervisor opens nothing.
//
//go:generate go run ./gen
package seccomp

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/rung-dev/rung"
)

// Profile names a filter.
type Profile string

// The profiles. Those with notification need somebody who receives the listener and calls Supervise.
const (
	Container      Profile = "container"       // what people get from a plain container (moby's default profile)
	Hardened       Profile = "hardened"        // rung's own allow-list
	HardenedNotify Profile = "hardened-notify" // the same; dangerous calls are reported
	Process        Profile = "process"         // as Hardened, without internet sockets
	ProcessNotify  Profile = "process-notify"  // the same; dangerous calls and internet sockets are reported
	Gate           Profile = "gate"            // for the gate's own process, which no runtime starts
)

// Filter returns the profile as raw BPF (an array of struct sock_filter) for this machine, or nil where there is none:
// another architecture than amd64 and arm64, another system than Linux, or an unknown profile. A caller must not start
// anything without one; Install and the sections refuse an empty filter.
func Filter(p Profile) []byte { return []byte(filterText(p)) }

// errNone is what a caller gets for a profile that Filter has not.
func errNone(p Profile) error {
	return rung.Errorf(rung.KindUnavailable, "there is no system call filter %q for this machine", string(p)).
		WithHint("rung is built for Linux on amd64 and arm64")
}

// AnnotationKey is the annotation under which crun takes a raw filter.
const AnnotationKey = "run.oci.seccomp_bpf_data"

// Annotation returns the profile as the value of the annotation AnnotationKey.
func Annotation(p Profile) (string, error) {
	text := filterText(p)
	if text == "" {
		return "", errNone(p)
	}
	return base64.StdEncoding.EncodeToString([]byte(text)), nil
}

// CrunSection returns the linux.seccomp member that goes with the annotation: no calls, no flags, and the path of a
// listening Unix socket that receives the listener ("" without notification).
func CrunSection(listenerPath string) []byte {
	s := `{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"flags":[]`
	if listenerPath != "" {
		s += `,"listenerPath":` + quote(listenerPath)
	}
	return []byte(s + "}")
}

// RuncSection returns the linux.seccomp member with the whole profile, for runtimes that take no raw filter.
func RuncSection(p Profile, listenerPath string) ([]byte, error) {
	text := ociText(p)
	if text == "" {
		return nil, errNone(p)
	}
	if listenerPath != "" {
		text = strings.TrimSuffix(text, "}") + `,"listenerPath":` + quote(listenerPath) + "}"
	}
	return []byte(text), nil
}

// quote writes a path as a JSON string. Paths that rung makes are plain; one that is not UTF-8 cannot be said in JSON, and
// the runtime then refuses the mangled path because nobody listens there.
func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range path {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20:
			b.WriteString(`\u00` + strconv.FormatInt(int64(r)+0x100, 16)[1:])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Name returns the name of a system call of this machine's architecture, or "syscall_N" for a number without one.
func Name(nr int) string {
	if nr >= 0 && nr < len(nameAt)-1 && nameAt[nr] != nameAt[nr+1] {
		return nameText[nameAt[nr]:nameAt[nr+1]]
	}
	return "syscall_" + strconv.Itoa(nr)
}
