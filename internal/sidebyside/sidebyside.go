// Package sidebyside lets the tests of a package that wait most of their time run
// side by side.
package sidebyside

import (
	"flag"
	"strconv"
)

// Tests lets n parallel tests of this package run at once, unless the command line
// says how many with -parallel. For TestMain.
func Tests(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
