#!/usr/bin/env bash
# Runs the command. With sudo, assay-run runs as root, as the kernel layer requires. The
# command still runs as the user, with the user's environment.
set -euo pipefail
bundle=${RUNNER_TEMP:-/tmp}/assay-run-$(date +%s)-$$.tar.gz
eval "args=($ASSAY_ARGS)"
program=$(command -v assay-run)
command=(bash --noprofile --norc -eo pipefail -c "$ASSAY_COMMAND")
as_root=()
if [ "$(id -u)" != 0 ] && [ "$ASSAY_SUDO" != never ]; then
	if sudo -n true 2>/dev/null; then
		as_root=(sudo -n -E env "PATH=$PATH" "HOME=$HOME")
		command=(setpriv --reuid "$(id -u)" --regid "$(id -g)" --init-groups --inh-caps=-all -- "${command[@]}")
	elif [ "$ASSAY_SUDO" = always ]; then
		echo "::error::sudo needs a password here; set sudo: never to run without it"
		exit 1
	fi
fi
code=0
"${as_root[@]}" "$program" "${args[@]}" --output "$bundle" -- "${command[@]}" || code=$?
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
if [ -e "$bundle" ]; then
	[ ${#as_root[@]} = 0 ] || sudo -n chown "$(id -u):$(id -g)" "$bundle"
	echo "bundle=$bundle" >> "$GITHUB_OUTPUT"
fi
# The step after the upload ends the job with the command's exit code.
[ -e "$bundle" ] || exit "$code"
