// Package sidebyside lets the tests of a package that wait most of their time run
// side by side.
package sidebyside

import (
	"flag"
	"os"
	"strconv"
)

// Tests lets n parallel tests of this package run at once, unless the command line
// says how many with -parallel. For TestMain.
//
// Processes that such tests start end at once, without the second that the race
// detector waits for goroutines which might still race.
func Tests(n int) {
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
	}
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
