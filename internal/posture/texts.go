package posture

import "github.com/rung-dev/rung"

// facts are what is true of a rung on every host. They are claims: the escape test is what proves or refutes them.
type facts struct {
	boundary string   // what stands between the code and the host
	enforced string   // who enforces it
	use      string   // what it is for
	getsOut  []string // what still crosses it
}

const (
	sharedKernel = "any bug in the host kernel's system calls that the filter lets through: the kernel is shared"
	sideChannels = "side channels: CPU time, caches and speculation tell neighbours something"
	copiedOut    = "what --out names is copied to the host, where its next reader must not trust it"
)

// everywhere is what gets out of every wall on this host.
var everywhere = []string{sideChannels, copiedOut}

func factsOf(r rung.Rung) facts {
	switch r {
	case rung.None:
		return facts{
			boundary: "none", enforced: "nobody", use: "the positive control of the escape test, never agent code",
			getsOut: []string{"everything: the files, network, processes and credentials of the calling user"},
		}
	case rung.Process:
		return facts{
			boundary: "a user id of its own, Landlock, seccomp, namespaces, rlimits, cgroup", enforced: "the kernel",
			use: "hygiene on top of another tier",
			getsOut: []string{
				sharedKernel,
				"Landlock leaves out names, sizes and times of files, and everything that is no file or TCP port",
				"the template's programs and libraries are readable: with template host, the host's versions",
				sideChannels, copiedOut,
			},
		}
	case rung.Container:
		return facts{
			boundary: "namespaces, cgroups and the runtime's shipped defaults", enforced: "the kernel, set up by crun or runc",
			use: "vetted code",
			getsOut: []string{
				"as root, root inside is root outside: one runtime or mount mistake and the host is open",
				"13 capabilities and moby's filter: packet and raw sockets, netlink, ptrace, splice reach the kernel",
				sharedKernel,
				"kernel symbols and configuration, boot id, load and memory of the host are readable",
				sideChannels, copiedOut,
			},
		}
	case rung.Hardened:
		return facts{
			boundary: "user namespace, no capabilities, read-only root, strict seccomp, masked paths, no network",
			enforced: "the kernel, set up by crun or runc", use: "trusted code, single tenant",
			getsOut: []string{
				"bugs in the few hundred system calls that remain, such as splice, futex and file systems: the kernel is shared",
				"boot id, kernel release, load and total memory of the host are readable",
				sideChannels, copiedOut,
			},
		}
	case rung.GVisor:
		return facts{
			boundary: "a user-space kernel, itself in namespaces behind a filter", enforced: "gVisor (runsc)",
			use: "generated code, single tenant",
			getsOut: []string{
				"a bug in gVisor's kernel together with one that its own filter of some 90 host calls lets through",
				"what is shared in on purpose: none of the host's sockets, FIFOs or devices here",
				sideChannels, copiedOut,
			},
		}
	}
	return laterFacts(r)
}

func laterFacts(r rung.Rung) facts {
	switch r {
	case rung.Wasm:
		return facts{
			boundary: "linear memory, no system calls", enforced: "wazero, inside a process rung", use: "pure computation",
			getsOut: []string{"what the host functions offer", "a bug in the compiler, into the process rung", sideChannels, copiedOut},
		}
	case rung.MicroVM:
		return facts{
			boundary: "hardware virtualisation, a kernel of its own", enforced: "QEMU microvm, Firecracker or Cloud Hypervisor on KVM",
			use: "untrusted code, several tenants",
			getsOut: []string{
				"a bug in the virtual devices or in KVM, then in the jail around the VMM",
				"directories and sockets shared into the machine: a share is a share",
				sideChannels, copiedOut,
			},
		}
	case rung.Remote:
		return facts{
			boundary: "somebody else's infrastructure", enforced: "the provider", use: "code that should not run here at all",
			getsOut: []string{"code, input and output leave this machine", "the wall cannot be measured from here, only believed"},
		}
	}
	return facts{}
}
