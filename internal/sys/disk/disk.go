// Package disk gives a sandbox a writable disk with a real quota, for one life: an ext4 image of exactly the size asked
// for, without a name, attached to a loop device that lets go by itself. Beyond the quota a write gets ENOSPC, where a
// tmpfs would have got the writer killed for memory; what is written can be paged out to the host's disk. Nothing has to
// be cleared up: the image is freed when the last mount of it goes, and that is in the mount namespace of the holder.
//
// The image is a sparse copy of a blank one made once per size (<state>/blank). It has no journal and the mount writes no
// barriers: a disk that does not survive its sandbox has nothing to recover, and a flush would wait for the host's disk.
//
// Space. Images are sparse, so the sizes of all live disks together may exceed what the host has; Mount refuses when the
// host could not even take one gigabyte (or the size, if smaller) more. When the host's disk fills up later, writers
// inside get errors, and only they. Files are bounded too: one per 16 KiB of size, at least 1024, at most 262144.
package disk

// Bounds and policy.
const (
	maxBlanks   = 8         // sizes kept in <state>/blank
	reserve     = 512 << 20 // of the host's disk, never promised to anybody
	enough      = 1 << 30   // what must be free for one more disk, if the disk is that large
	blockSize   = 4096
	minSize     = 1 << 20
	minInodes   = 1024
	maxInodes   = 262144
	perInode    = 16 << 10
	attachTries = 256 // of finding a free loop device, against others who look for one at the same time
)

// inodes is the number of files and directories a disk of that size can hold.
func inodes(size int64) int64 { return min(max(size/perInode, minInodes), maxInodes) }

// needed is what must be free on the host for a disk of that size to be made.
func needed(size int64) int64 { return min(size, enough) + reserve }

// Attached is a loop device that carries a disk of ours.
type Attached struct {
	Device string
	ID     string // of the sandbox, cut to 58 characters by the kernel
}
