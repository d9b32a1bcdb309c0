// Command compose checks docker-compose.yml with the library that Docker Compose
// itself reads it with, and against the URLs that "onceline verify --compose" uses.
// It runs no Docker and pulls no image.
//
//	cd .ci/compose && go run . ../../docker-compose.yml
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/onceline/onceline/localstack/compose"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE")
		os.Exit(2)
	}
	endpoints := compose.Endpoints()
	if err := check(context.Background(), os.Args[1], endpoints); err != nil {
		fmt.Fprintf(os.Stderr, "%s:\n%v\n", os.Args[1], err)
		os.Exit(1)
	}
	fmt.Printf("%s: fine, and so are its %d URLs\n", os.Args[1], len(endpoints))
}
