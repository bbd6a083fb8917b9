package posture

import "strings"

// Machine is the hardware as this process sees it.
type Machine struct {
	Virtual  bool     `json:"virtual"`
	Micro    bool     `json:"microvm"` // a minimal machine of the kind that is made for one workload
	Name     string   `json:"name,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
}

// vendors are what virtual machines write into their DMI tables, by a part of vendor and product together.
var vendors = []struct {
	part, name string
	micro      bool
}{
	{"Cloud Hypervisor", "Cloud Hypervisor", true},
	{"Firecracker", "Firecracker", true},
	{"QEMU", "QEMU", false},
	{"Amazon EC2", "Amazon EC2", false},
	{"Google Compute Engine", "Google Compute Engine", false},
	{"Microsoft Corporation Virtual Machine", "Hyper-V", false},
	{"VMware", "VMware", false},
	{"VirtualBox", "VirtualBox", false},
	{"Xen", "Xen", false},
	{"OpenStack", "OpenStack", false},
	{"DigitalOcean", "DigitalOcean", false},
	{"Hetzner", "Hetzner", false},
	{"Parallels", "Parallels", false},
	{"Apple Virtualization", "Apple Virtualization", false},
	{"BHYVE", "bhyve", false},
	{"Alibaba Cloud", "Alibaba Cloud", false},
	{"KVM", "KVM", false},
}

// machine looks for a hypervisor. On x86 the processor itself tells, so names in DMI alone (a cloud's bare metal machine has
// its vendor's) do not count there.
func machine(s System) Machine {
	var m Machine
	cpu := s.read("proc/cpuinfo")
	flags := field(cpu, "flags")
	m.sign(hasWord(flags, "hypervisor"), "the processor says it is a hypervisor's (cpuinfo flag)")
	clocks := s.word("sys/devices/system/clocksource/clocksource0/available_clocksource")
	m.sign(hasWord(clocks, "kvm-clock"), "the kernel has KVM's clock")
	m.sign(strings.Contains(clocks, "hyperv"), "the kernel has Hyper-V's clock")
	if kind := s.word("sys/hypervisor/type"); kind != "" {
		m.sign(true, "/sys/hypervisor/type is "+kind)
		m.name(kind)
	}
	tree := clean(strings.ReplaceAll(s.read("proc/device-tree/hypervisor/compatible"), "\x00", " "))
	m.sign(tree != "", "the device tree names a hypervisor: "+tree)
	m.vendor(s, flags != "")
	m.minimal(s)
	return m
}

func (m *Machine) sign(ok bool, text string) {
	if ok {
		m.Virtual = true
		m.Evidence = append(m.Evidence, text)
	}
}

func (m *Machine) name(s string) {
	if m.Name == "" {
		m.Name = s
	}
}

func (m *Machine) vendor(s System, processorTells bool) {
	dmi := s.word("sys/class/dmi/id/sys_vendor") + " " + s.word("sys/class/dmi/id/product_name")
	for _, v := range vendors {
		if !strings.Contains(dmi, v.part) || processorTells && !m.Virtual {
			continue
		}
		m.sign(true, "DMI says "+strings.TrimSpace(dmi))
		m.name(v.name)
		m.Micro = m.Micro || v.micro
		return
	}
}

// minimal looks for machines made for one workload: they have virtio devices without a PCI bus, or say who they are in ACPI
// tables, on the kernel's command line or in the name of the share they were given.
func (m *Machine) minimal(s System) {
	for _, table := range []string{"FACP", "APIC", "DSDT"} {
		if text := s.read("sys/firmware/acpi/tables/" + table); len(text) > 16 && text[10:16] == "FIRECK" {
			m.micro("ACPI tables are Firecracker's", "Firecracker")
			break
		}
	}
	line := " " + s.word("proc/cmdline") + " "
	if strings.Contains(line, " agent.log") || strings.Contains(line, "kata-containers.target") {
		m.micro("the kernel's command line is Kata's", "Kata")
	}
	for _, mount := range s.Mounts {
		if mount.Source == "kataShared" {
			m.micro("the root comes over Kata's share", "Kata")
			break
		}
	}
	if m.Virtual && !m.Micro && len(s.names("sys/bus/pci/devices")) == 0 && len(s.names("sys/bus/virtio/devices")) > 0 {
		m.micro("virtio devices without a PCI bus", "a microVM such as Firecracker")
	}
}

func (m *Machine) micro(text, name string) {
	m.sign(true, text)
	m.Micro = true
	m.name(name)
}

// field returns the value of the first line of that key in cpuinfo's form.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == key {
			return v
		}
	}
	return ""
}

func hasWord(text, word string) bool {
	for w := range strings.FieldsSeq(text) {
		if w == word {
			return true
		}
	}
	return false
}
