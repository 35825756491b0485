// Package pages writes the results of a suite for people: as a page in Markdown or HTML, and as a comparison of two
// suites. It escapes all names and reasons, because agents and tasks can choose them.
package pages
