package measure

// Self measures the calling process. It opens nothing that stays open and never fails as a whole.
func Self() Measurement { return self() }

// Host returns the facts to compare with, read once per process. Call it in a process that has not left the host's
// namespaces: for a holder, before it enters its own.
func Host() HostFacts { return hostOnce() }

// Mounts returns the calling process's mount table, at most its first mebibyte of text.
func Mounts() ([]Mount, error) { return mounts() }
