// Command gen writes the tables of the lock commands into the documents that are named as its arguments.
package main

import (
	"fmt"
	"os"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := update(name); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func update(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if text, err = grammar.Update(text); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
