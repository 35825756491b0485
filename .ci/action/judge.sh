#!/usr/bin/env bash
# Judges by the rules and writes the job's summary. Exits with the command's exit code if
# that is not 0, else with the gate's.
set -uo pipefail
gate=0
if [ -n "$ASSAY_RULES" ]; then
	assay-run gate --rules "$ASSAY_RULES" "$ASSAY_BUNDLE" || gate=$?
fi
{
	echo "<details><summary>What the run did</summary>"
	echo
	# Indented by four spaces, it is code: nothing in it can be markup. GitHub allows 1 MiB.
	assay-run show --no-pager "$ASSAY_BUNDLE" | head -c 200000 | sed 's/^/    /'
	echo
	echo "</details>"
} >> "$GITHUB_STEP_SUMMARY"
[ "$ASSAY_EXIT_CODE" = 0 ] || echo "::error::the command ended with $ASSAY_EXIT_CODE"
[ "$ASSAY_EXIT_CODE" = 0 ] || exit "$ASSAY_EXIT_CODE"
exit "$gate"
