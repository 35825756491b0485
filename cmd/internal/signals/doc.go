// Package signals catches the signals that assay-run passes on to a command.
//
// Go takes two switches of threads, some 40 µs, for each signal, and there are fifty. So
// this package begins while the others are initialized, on a CPU that has nothing else to do
// then. It imports little, so that its turn comes early. It catches only what Go ignores in a
// program that does not ask for it: until [Catch] is called, ^C and SIGTERM end the program
// as they would without this package.
package signals
