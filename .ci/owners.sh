#!/usr/bin/env bash
# Install other systems' own code, which writes the stores that adapters are tested on, into a folder:
#   .ci/owners.sh FOLDER && MEMLAB_OWNERS=FOLDER pytest
# What is there already stays. What cannot be installed is said, and its tests are skipped by name.
set -uo pipefail
folder=$(mkdir -p "${1:?name a folder}" && cd "$1" && pwd)

claude_mem() {  # TypeScript for Bun, which npm brings as well; its peers are agents that are not needed
    command -v npm >/dev/null || { echo "claude-mem: no npm"; return; }
    mkdir -p "$folder/claude-mem" && cd "$folder/claude-mem" || return
    timeout 300 npm install --silent --legacy-peer-deps --no-audit --no-fund --ignore-scripts \
        claude-mem@13 @oven/bun-linux-x64@1 || echo "claude-mem: npm cannot install it"
}

[ -d "$folder/claude-mem/node_modules/claude-mem" ] || claude_mem
