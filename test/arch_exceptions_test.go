package test

// The exceptions of the architecture tests, each with the reason it is one. A line that is no longer needed fails the
// test too, so that the list only ever names what is true.

// importExceptions: "from -> to".
var importExceptions = map[string]string{}

// sizeExceptions: "file", "file:function", "file:interface" or "folder/".
var sizeExceptions = map[string]string{}

// callExceptions: "file: call".
var callExceptions = map[string]string{}

// globalExceptions: "file: variable".
var globalExceptions = map[string]string{}

// generatedExceptions: "file".
var generatedExceptions = map[string]string{
	"internal/sys/seccomp/names_amd64.go": "system call numbers: the suffix is the build constraint",
	"internal/sys/seccomp/names_arm64.go": "system call numbers: the suffix is the build constraint",
}
