package script

// All are all scripts.
func All() []*Script { return all }
