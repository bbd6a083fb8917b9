package measure

import "strconv"

// capNames is indexed by bit, as in the kernel's capability.h.
var capNames = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

// CapNames lists the capabilities of a mask by name ("CAP_SYS_ADMIN"), lowest bit first. A bit without a name in this
// table is listed by number ("CAP_63"), never dropped. It is never nil, so that an empty set reads [] in JSON.
func CapNames(mask uint64) []string {
	names := []string{}
	for bit := range 64 {
		if mask&(1<<bit) == 0 {
			continue
		}
		if bit < len(capNames) {
			names = append(names, "CAP_"+capNames[bit])
		} else {
			names = append(names, "CAP_"+strconv.Itoa(bit))
		}
	}
	return names
}
