// Package pages writes what people read about the results of a suite: a comparison of two, and one page in Markdown or
// HTML. Names and reasons come from agents and tasks: nothing of them gets into a page unescaped.
package pages
