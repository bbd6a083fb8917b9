package measure

import "testing"

func BenchmarkSelf(b *testing.B) {
	for b.Loop() {
		Self()
	}
}
