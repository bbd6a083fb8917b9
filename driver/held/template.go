package held

import (
	"github.com/rung-dev/rung/driver"
	"github.com/rung-dev/rung/internal/image"
)

// Template is what drivers need to know of a stored template.
func Template(t image.Template) driver.Template {
	d := driver.Template{Name: t.Name, Digest: t.Digest, Root: t.Root, OwnerBase: t.OwnerBase}
	for _, b := range t.Binds {
		d.Binds = append(d.Binds, driver.Bind{Source: b.Source, Target: b.Target})
	}
	return d
}
