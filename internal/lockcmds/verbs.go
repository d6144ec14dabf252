package lockcmds

// Verbs lists the names of the lock commands in lower case.
func Verbs() []string {
	names := make([]string, 0, len(grammars))
	for _, g := range grammars {
		names = append(names, g.name)
	}
	return names
}
