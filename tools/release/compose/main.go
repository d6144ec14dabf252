// Command compose checks files of Docker Compose against its schema and its rules, without Docker.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			continue
		}
		fmt.Println(path, "is valid")
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithName("check"), cli.WithWorkingDirectory(filepath.Dir(path)))
	if err != nil {
		return err
	}
	_, err = options.LoadProject(context.Background())
	return err
}
