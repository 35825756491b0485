// Package sign says who made a bundle.
//
// A bundle proves that its parts belong together, and not where it comes from:
// anyone can make one. A signature adds the origin. It is a DSSE envelope
// (https://github.com/secure-systems-lab/dsse) around an in-toto statement whose
// subject is the bundle's identity, the digest of its manifest, and whose
// predicate repeats what a gate asks first: verdict, health, digests of contract
// and policy. Since the identity covers every member, one signature holds for
// both codecs. Envelopes stand beside the bundle, one a line, in
// BUNDLE.intoto.jsonl.
//
// A [Signer] is an ed25519 key from a file ([LoadKey]), in an ssh-agent
// ([Agent]) or behind a command ([Command]). [Bundle] signs. [Check] looks for
// an envelope by somebody whom [Trust] accepts: public keys, or principals from
// an OpenSSH allowed-signers file.
//
// Values are safe for concurrent use. Nothing here uses the network.
package sign
