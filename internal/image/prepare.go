package image

import "os"

// guestFile is where rung-guest is bound; an empty file in every tree.
const guestFile = "/.rung/guest"

type mountDir struct {
	path string
	mode os.FileMode
}

// mountDirs are the directories every tree has, parents first.
func mountDirs() []mountDir {
	return []mountDir{
		{"/proc", 0o755}, {"/sys", 0o755}, {"/dev", 0o755}, {"/tmp", os.ModeSticky | 0o777}, {"/work", 0o755},
		{"/home", 0o755}, {"/home/user", 0o755}, {"/run", 0o755}, {"/var", 0o755}, {"/root", 0o755}, {"/.rung", 0o755},
	}
}
