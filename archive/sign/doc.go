// Package sign signs bundles and checks signatures.
//
// A bundle proves that its parts belong together, but not who made it. A
// signature does. It is a DSSE envelope
// (https://github.com/secure-systems-lab/dsse) around an in-toto statement. The
// statement's subject is the bundle's identity, which is the digest of its
// manifest and covers every member. Its predicate repeats what a gate needs
// first: verdict, health, digests of contract and policy. The signature stays
// valid if the bundle is compressed with another codec. Envelopes are in
// BUNDLE.intoto.jsonl beside the bundle, one on a line.
//
// A [Signer] is an ed25519 key from a file ([LoadKey]), in an ssh-agent
// ([Agent]) or behind a command ([Command]). [Bundle] signs. [Check] looks for
// an envelope by a key that [Trust] accepts: public keys, or principals from an
// OpenSSH allowed-signers file.
//
// Values are safe for concurrent use. Nothing here uses the network.
package sign
