package measure

import (
	"bytes"
	"encoding/binary"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A witness is a process that was forked the way user processes are and has become the user, but executes no program:
// it performs the steps of Steps with bare system calls, writes what came out, and ends. It costs a fortieth of starting a
// program that measures itself, which on gVisor is most of what a measurement costs.

// Step is one thing a witness does. Exactly one kind: a file to read, a link to read, or a system call, one of whose
// arguments may be replaced by a buffer that is then the result, or counted up.
type Step struct {
	File, Link *byte // C strings
	Call       uintptr
	A1, A2, A3 uintptr
	Buffer     uintptr // 0 = none; else the number (1 or 2) of the argument that takes the buffer's address
	Size       uintptr // bytes of the buffer that are the result
	// Count > 0 makes the call for each number below it, as argument Vary (1 or 2). Each result is one byte: what the call
	// returned, or its errno with WitnessRefused.
	Count, Vary uintptr
	// SkipMask, if not 0, skips the step when the result before has one of these bits in its 8 bytes at SkipAt.
	SkipMask uint64
	SkipAt   uintptr
}

// WitnessRefused marks a byte of a counted step as an errno.
const WitnessRefused = 0x80

// The steps, by position.
const (
	stepStatus = iota
	stepUIDMap
	stepAppArmor
	stepLSM
	stepBootID
	stepVersion
	stepNetDev
	stepStatfs
	stepMountinfo // only where statfs does not tell
	stepUID
	stepGID
	stepGroups
	stepNNP
	stepSeccomp
	stepUname
	stepBounding
	stepDescriptors
	stepNamespaces
	namespaceCount  = 8
	stepCount       = stepNamespaces + namespaceCount
	boundingCount   = 41
	descriptorCount = 256
)

// RecordHead is what a witness writes before each result: step (2 bytes), errno (2), length (4), native order.
const RecordHead = 8

// WitnessBuffer is how much of a file or buffer a witness returns. A first read of less than WitnessRead is a whole file;
// see oneRead.
const (
	WitnessBuffer = 16 << 10
	WitnessRead   = oneRead
)

// Steps returns what a witness does. root is the C string of "/", which must stay alive.
func Steps() []Step {
	s := make([]Step, stepCount)
	for at, name := range map[int]string{
		stepStatus: "/proc/self/status", stepUIDMap: "/proc/self/uid_map", stepAppArmor: "/proc/self/attr/apparmor/current",
		stepLSM: "/proc/self/attr/current", stepBootID: "/proc/sys/kernel/random/boot_id", stepVersion: "/proc/version",
		stepNetDev: "/proc/self/net/dev", stepMountinfo: "/proc/self/mountinfo",
	} {
		s[at].File = cstring(name)
	}
	for i, kind := range Kinds() {
		s[stepNamespaces+i].Link = cstring("/proc/self/ns/" + kind)
	}
	s[stepMountinfo].SkipAt, s[stepMountinfo].SkipMask = unsafe.Offsetof(unix.Statfs_t{}.Flags), stValid
	s[stepUID] = Step{Call: unix.SYS_GETUID}
	s[stepGID] = Step{Call: unix.SYS_GETGID}
	s[stepGroups] = Step{Call: unix.SYS_GETGROUPS, A1: 256, Buffer: 2, Size: 256 * 4}
	s[stepNNP] = Step{Call: unix.SYS_PRCTL, A1: unix.PR_GET_NO_NEW_PRIVS}
	s[stepSeccomp] = Step{Call: unix.SYS_PRCTL, A1: unix.PR_GET_SECCOMP}
	s[stepStatfs] = Step{Call: unix.SYS_STATFS, A1: uintptr(unsafe.Pointer(rootPath)), Buffer: 2, Size: unsafe.Sizeof(unix.Statfs_t{})}
	s[stepUname] = Step{Call: unix.SYS_UNAME, Buffer: 1, Size: unsafe.Sizeof(unix.Utsname{})}
	s[stepBounding] = Step{Call: unix.SYS_PRCTL, A1: unix.PR_CAPBSET_READ, Vary: 2, Count: boundingCount}
	s[stepDescriptors] = Step{Call: unix.SYS_FCNTL, A2: unix.F_GETFD, Vary: 1, Count: descriptorCount}
	return s
}

var rootPath = cstring("/") // in memory that is never moved: a global's

func cstring(s string) *byte {
	p, err := syscall.BytePtrFromString(s)
	if err != nil {
		panic(err) // a constant without NUL
	}
	return p
}

// testimony is what a witness wrote, by step.
type testimony struct {
	data [][]byte
	errs []syscall.Errno
	seen []bool
}

// Witnessed turns what a witness wrote into a measurement. Steps that are missing (it was killed, the pipe broke) are
// fields that were not measured.
func Witnessed(stream []byte) Measurement {
	t := testimony{data: make([][]byte, stepCount), errs: make([]syscall.Errno, stepCount), seen: make([]bool, stepCount)}
	for len(stream) >= RecordHead {
		step := int(binary.NativeEndian.Uint16(stream))
		size := int(binary.NativeEndian.Uint32(stream[4:]))
		if step >= stepCount || size > len(stream)-RecordHead || size > WitnessBuffer {
			break
		}
		t.errs[step] = syscall.Errno(binary.NativeEndian.Uint16(stream[2:]))
		t.data[step], t.seen[step] = stream[RecordHead:RecordHead+size], true
		stream = stream[RecordHead+size:]
	}
	return t.measurement()
}

func (t *testimony) get(step int) ([]byte, error) {
	if !t.seen[step] {
		return nil, syscall.ENODATA
	}
	if t.errs[step] != 0 {
		return nil, t.errs[step]
	}
	return t.data[step], nil
}

// value is the result of a call without a buffer: eight bytes.
func (t *testimony) value(step int) (int, error) {
	b, err := t.get(step)
	if err != nil || len(b) != 8 {
		return -1, syscall.ENODATA
	}
	return int(int64(binary.NativeEndian.Uint64(b))), nil
}

// counted are the results of a counted step, as many as there should be.
func (t *testimony) counted(step, count int) ([]byte, error) {
	b, err := t.get(step)
	if err == nil && len(b) != count {
		err = syscall.ENODATA
	}
	return b, err
}

func (t *testimony) measurement() Measurement {
	m := Measurement{SeccompFilters: -1}
	t.identity(&m)
	t.status(&m)
	m.setUIDMap(t.get(stepUIDMap))
	t.lsm(&m)
	t.root(&m)
	t.kernel(&m)
	if text, err := t.get(stepNetDev); err == nil {
		if m.Interfaces, err = ParseNetDev(text); err != nil {
			m.fail("interfaces", err.Error())
		}
	} else {
		m.fail("interfaces", err.Error())
	}
	t.descriptors(&m)
	m.failCgroup("not looked for inside; the host tells")
	if m.GVisor {
		m.fail("namespaces", "gVisor's own, apart because its kernel is")
		return m
	}
	t.namespaces(&m)
	return m
}

func (t *testimony) identity(m *Measurement) {
	var errs [2]error
	m.UID, errs[0] = t.value(stepUID)
	m.GID, errs[1] = t.value(stepGID)
	for i, field := range []string{"uid", "gid"} {
		if errs[i] != nil {
			m.fail(field, errs[i].Error())
		}
	}
	b, err := t.get(stepGroups)
	if err != nil {
		m.fail("groups", err.Error())
	}
	m.Groups = []int{}
	for len(b) >= 4 {
		m.Groups = append(m.Groups, int(binary.NativeEndian.Uint32(b)))
		b = b[4:]
	}
}

func (t *testimony) status(m *Measurement) {
	st := Status{Filters: -1}
	text, err := t.get(stepStatus)
	if err == nil {
		st, err = ParseStatus(text)
	}
	if err != nil {
		st = Status{Filters: -1}
		m.fail("seccomp_filters", err.Error())
	}
	if !st.HasCaps {
		m.fail("capabilities", "the status file does not tell")
	}
	st.Bounding = 0
	bounding, err := t.counted(stepBounding, boundingCount)
	if err != nil {
		m.fail("bounding", err.Error())
	}
	for c, on := range bounding {
		switch on {
		case 0, WitnessRefused | byte(syscall.EINVAL): // EINVAL: beyond the kernel's last
		case 1:
			st.Bounding |= 1 << c
		default:
			m.fail("bounding", syscall.Errno(on&^WitnessRefused).Error())
		}
	}
	// A witness has not executed anything, so it still has what the forking program holds. The most that is left after any
	// exec is what the inheritable and ambient sets pass on and what the bounding set lets a file give (capabilities(7),
	// "Transformation of capabilities during execve()").
	st.Held = st.Passed | st.Bounding
	m.setStatus(st, func(option int) (int, error) {
		if option == unix.PR_GET_NO_NEW_PRIVS {
			return t.value(stepNNP)
		}
		return t.value(stepSeccomp)
	})
}

func (t *testimony) lsm(m *Measurement) {
	m.setLSM(
		func() ([]byte, error) { return t.get(stepAppArmor) },
		func() ([]byte, error) { return t.get(stepLSM) },
	)
}

func (t *testimony) root(m *Measurement) {
	b, err := t.get(stepStatfs)
	if err == nil && len(b) == int(unsafe.Sizeof(unix.Statfs_t{})) {
		st := *(*unix.Statfs_t)(unsafe.Pointer(unsafe.SliceData(bytes.Clone(b))))
		if st.Flags&unix.ST_RDONLY != 0 {
			m.RootReadOnly = true
			return
		}
		if st.Flags&stValid != 0 {
			return
		}
	}
	text, err := t.get(stepMountinfo)
	if err != nil || len(text) == WitnessBuffer {
		m.fail("root_readonly", reason(err, "mountinfo is too long"))
		return
	}
	m.setRoot(ParseMountInfo(text))
}

func (t *testimony) kernel(m *Measurement) {
	m.setBootID(t.get(stepBootID))
	b, err := t.get(stepUname)
	if err != nil || len(b) != int(unsafe.Sizeof(unix.Utsname{})) {
		m.fail("kernel", reason(err, "uname tells too little"))
		m.fail("gvisor", reason(err, "uname tells too little"))
		return
	}
	uts := *(*unix.Utsname)(unsafe.Pointer(unsafe.SliceData(bytes.Clone(b))))
	m.setKernel(&uts, func() ([]byte, error) { return t.get(stepVersion) })
}

func (t *testimony) descriptors(m *Measurement) {
	m.Descriptors = []int{}
	flags, err := t.counted(stepDescriptors, descriptorCount)
	if err != nil {
		m.fail("descriptors", "the witness did not tell: "+err.Error())
	}
	for fd, f := range flags {
		if f&(WitnessRefused|unix.FD_CLOEXEC) == 0 {
			m.Descriptors = append(m.Descriptors, fd)
		}
	}
}

func (t *testimony) namespaces(m *Measurement) {
	m.Namespaces = make(map[string]string, namespaceCount)
	for i, kind := range Kinds() {
		link, err := t.get(stepNamespaces + i)
		if err != nil || !strings.HasPrefix(string(link), kind+":[") {
			m.fail("namespaces."+kind, reason(err, "not a namespace link"))
			continue
		}
		m.Namespaces[kind] = string(link)
	}
}
