package report

// CompareNatural orders numbers, with binary suffixes or not, by value and before words: -1, 0 or 1.
func CompareNatural(a, b string) int { return compareNatural(a, b) }
