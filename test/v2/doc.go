// Package v2 tests rung where most of its users are: on a host with cgroup version 2 only. The development machines have
// version 1, so the host is a QEMU virtual machine (emulated: no /dev/kvm needed) with the distribution's own kernel, its
// root file system made of this host's packages, and the program inside as its first process. That program sets the
// control groups up as systemd does, runs every case, and reports over the serial console.
package v2
