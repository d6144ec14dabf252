package main

// meant is the end of an error about a misspelt name: it has the name that is meant, perhaps.
func meant(name string, candidates []string) string {
	best, limit := "", 1+len(name)/4
	for _, candidate := range candidates {
		if d := distance(name, candidate); d <= limit {
			best, limit = candidate, d-1
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance is how many characters are to be changed, added or removed to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
