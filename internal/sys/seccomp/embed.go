//go:build linux && (amd64 || arm64)

package seccomp

func filterText(p Profile) string {
	switch p {
	case Container:
		return containerFilter
	case Hardened:
		return hardenedFilter
	case HardenedNotify:
		return hardenedNotifyFilter
	case Process:
		return processFilter
	case ProcessNotify:
		return processNotifyFilter
	case Gate:
		return gateFilter
	}
	return ""
}

func ociText(p Profile) string {
	switch p {
	case Container:
		return containerOCI
	case Hardened:
		return hardenedOCI
	case HardenedNotify:
		return hardenedNotifyOCI
	case Process:
		return processOCI
	case ProcessNotify:
		return processNotifyOCI
	}
	return ""
}
