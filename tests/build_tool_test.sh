#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# What tools/build calls and says, with something in the place of cmake that only notes what it is asked.
# Usage: build_tool_test.sh SOURCE_DIR
set -u
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
mkdir -p "$directory"/{repository,programs,home}
cp -r "$1/tools" "$directory/repository/"
cat >"$directory/programs/cmake" <<'CMAKE'
#!/bin/sh
echo "cmake $*" >>"$CALLS"
case $1 in
  --build) mkdir -p build/"$3"/bin && cp /bin/true build/"$3"/bin/uroce ;;
  --install) mkdir -p "$4"/bin && cp /bin/true "$4"/bin/uroce ;;
esac
CMAKE
chmod +x "$directory/programs/cmake"
export CALLS=$directory/calls HOME=$directory/home PATH=$directory/programs:/usr/bin:/bin
failures=0

# builds CODE CALLS SAID ARGUMENTS...: what it calls last, and says last, match these.
builds() {
  local code=$1 calls=$2 said=$3 output actual
  shift 3
  echo nothing >"$CALLS"
  output=$("$directory/repository/tools/build" "$@" 2>&1)
  actual=$?
  if [[ $actual -ne $code ]] || ! tail -n 1 "$CALLS" | grep -Eq -- "^$calls\$" || ! tail -n 1 <<<"$output" | grep -Eq -- "$said"; then
    printf 'FAILED: tools/build %s\n  exit code %s, called:\n%s\n  said:\n%s\n' "$*" "$actual" "$(cat "$CALLS")" "$output"
    failures=$((failures + 1))
  fi
}

repository=$directory/repository
builds 0 'cmake --build --preset release .*' "uroce is $repository/build/release/bin/uroce; for this shell: export PATH=$repository/build/release/bin:"
builds 0 'cmake --build --preset demo .* --target a b' 'for this shell' demo a b
builds 0 "cmake --install build/demo --prefix $directory/opt --component Unspecified" "export PATH=$directory/opt/bin:" --install="$directory/opt"
builds 0 "cmake --install build/release --prefix $directory/opt --component Unspecified" 'uroce is ' --install="$directory/opt" release uroce
# On the PATH: nothing is left to do.
PATH=$directory/opt/bin:$PATH builds 0 'cmake --install .*' "^build: uroce is $directory/opt/bin/uroce\$" --install="$directory/opt"
builds 0 'cmake --preset demo' '' --configure demo
builds 2 nothing 'The preset demo' --nonsense
if [[ $EUID -eq 0 ]]; then
  # Where an ordinary user gets it.
  chmod -R a+rwX "$directory"
  echo nothing >"$CALLS"
  chmod a+rw "$CALLS"
  setpriv --reuid=65534 --regid=65534 --clear-groups "$repository/tools/build" --install >/dev/null
  grep -qxF "cmake --install build/demo --prefix $HOME/.local --component Unspecified" "$CALLS" || { echo "FAILED: an ordinary user"; failures=1; }
fi
exit $((failures > 0))
