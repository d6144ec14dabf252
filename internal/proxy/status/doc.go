// Package status counts what a proxy does, and says it: a snapshot for metrics and the status page, and the section lockproxy of INFO.
// Counting never blocks.
package status
