// Package child starts programs and waits for them like os/exec, for those that start one program in their life: os/exec
// first clones a child that ends at once, to see whether the kernel's process descriptors work, and that is half a
// millisecond of every sandbox's start.
package child
