package archive

import (
	"fmt"

	"github.com/assay-run/assay-run/schema"
)

// Class says how bad a problem is.
type Class string

const (
	Damaged    Class = "damaged"    // the bytes are not those that were sealed
	Invalid    Class = "invalid"    // the bytes are whole, but break the format or contradict themselves
	Unreadable Class = "unreadable" // nothing can be said about the bundle
)

// Code names a kind of failure. Codes are stable: scripts may rely on them.
// schema/SPEC.md says what each means.
type Code string

const (
	CodeUnreadable        Code = "unreadable"
	CodeUnsupportedFormat Code = "unsupported_format"

	CodeCompression    Code = "compression_damaged"
	CodeTruncated      Code = "truncated"
	CodeTrailing       Code = "trailing_garbage"
	CodeHeaderChecksum Code = "header_checksum"
	CodeDigest         Code = "digest_mismatch"
	CodeSize           Code = "size_mismatch"
	CodeMissing        Code = "missing_member"
	CodeExtra          Code = "extra_member"

	CodeManifestFirst   Code = "manifest_not_first"
	CodeManifest        Code = "manifest_invalid"
	CodeManifestForm    Code = "manifest_not_canonical"
	CodeRequired        Code = "required_member_absent"
	CodeUnsafePath      Code = "unsafe_path"
	CodeDuplicateMember Code = "duplicate_member"
	CodeOrder           Code = "wrong_order"
	CodeMemberType      Code = "member_type"
	CodeHeaderExtension Code = "header_extension"
	CodeHeaderForm      Code = "header_not_canonical"
	CodeLimit           Code = "limit_exceeded"
	CodeBomb            Code = "decompression_bomb"
	CodeJSON            Code = "json_invalid"
	CodeDuplicateKey    Code = "duplicate_key"
	CodeSchema          Code = "schema_mismatch"
	CodeUnterminated    Code = "line_unterminated"
	CodeSeq             Code = "seq_gap"
	CodeRunID           Code = "foreign_run_id"
	CodeLifecycle       Code = "lifecycle_order"
	CodeBlobName        Code = "blob_misnamed"
	CodeIntegrity       Code = "integrity_mismatch"
	CodeSurface         Code = "surface_not_sorted"
	CodeHealth          Code = "health_rule"
	CodeCounts          Code = "count_mismatch"
	CodeResult          Code = "result_inconsistent"
	CodeContract        Code = "contract_inconsistent"
	CodeWorkspace       Code = "workspace_inconsistent"
)

// Class returns the class of every problem with this code.
func (c Code) Class() Class {
	switch c {
	case CodeUnreadable, CodeUnsupportedFormat:
		return Unreadable
	case CodeCompression, CodeTruncated, CodeTrailing, CodeHeaderChecksum, CodeDigest, CodeSize, CodeMissing, CodeExtra:
		return Damaged
	}
	return Invalid
}

// Problem is one thing that is wrong with a bundle. As an error it reads
// "member:line: message (code)".
type Problem struct {
	Code    Code   `json:"code"`
	Class   Class  `json:"class"`
	Member  string `json:"member,omitempty"` // empty: the archive as a whole
	Line    uint64 `json:"line,omitempty"`   // counted from 1; 0: the member as a whole
	Message string `json:"message"`

	cause error
}

func (p *Problem) Error() string {
	where := ""
	if p.Member != "" {
		where = p.Member + ": "
	}
	if p.Line != 0 {
		where = fmt.Sprintf("%s:%d: ", p.Member, p.Line)
	}
	return fmt.Sprintf("%s%s (%s)", where, p.Message, p.Code)
}

// problem returns a Problem with a printable message of at most 1000 bytes.
func problem(code Code, member, format string, args ...any) *Problem {
	msg := fmt.Sprintf(format, args...)
	const most = 1000
	if len(msg) > most {
		msg = msg[:most] + "..."
	}
	return &Problem{Code: code, Class: code.Class(), Member: member, Message: schema.OneLine(msg)}
}
