-- Wireshark dissector of PCI Express packets with bluebridge's pseudo-header (docs/tlp-capture.md).
-- Copy it into the folder that Help > About Wireshark > Folders calls "Personal Lua Plugins", or
-- start with `wireshark -X lua_script:bluebridge_tlp.lua`. Wireshark and tshark 4.0 and later.

local shell = Proto("bluebridge.tlp", "bluebridge pseudo-header")
local tlp = Proto("tlp", "PCI Express TLP")

local CONTENT = { [1] = "TLP", [2] = "text" }
local PURPOSES = {
  [0] = "other", "doorbell", "BlueFlame write", "WQE read", "payload read", "receive WQE read",
  "payload write", "CQE", "EQE", "interrupt", "doorbell record read", "CQ doorbell",
  "EQ doorbell", "register read", "register write", "config access", "table access",
  "descriptor read", "copy read", "copy write", "completion word", "window store", "window load",
  "window access", "command", "reset", "note", "link", "control",
}
-- What the object of a purpose is.
local OBJECTS = {
  [1] = "QP", [3] = "QP", [4] = "QP", [6] = "QP", [7] = "CQ", [8] = "EQ", [11] = "CQ", [12] = "EQ",
  [17] = "channel", [18] = "channel", [19] = "channel", [20] = "channel",
}
local TYPES = {
  [0x00] = "MRd32", [0x20] = "MRd64", [0x40] = "MWr32", [0x60] = "MWr64",
  [0x04] = "CfgRd0", [0x44] = "CfgWr0", [0x0a] = "Cpl", [0x4a] = "CplD",
}
local FORMATS = {
  [0] = "3 dwords", "4 dwords", "3 dwords, data", "4 dwords, data", "prefix",
}
local TYPE_NAMES = { [0x00] = "memory", [0x04] = "config type 0", [0x0a] = "completion" }
local STATUSES = {
  [0] = "successful", [1] = "unsupported request", [2] = "configuration request retry",
  [4] = "completer abort",
}
local NO_BAR = 0xff

local p = {
  version = ProtoField.uint8("bluebridge.version", "Version"),
  header_length = ProtoField.uint8("bluebridge.header_length", "Header length"),
  content = ProtoField.uint8("bluebridge.content", "Content", base.DEC, CONTENT),
  flags = ProtoField.uint8("bluebridge.flags", "Flags", base.HEX),
  upstream = ProtoField.bool("bluebridge.upstream", "Sent by the function", 8, nil, 0x01),
  id_unknown = ProtoField.bool("bluebridge.id_unknown", "IDs unknown", 8, nil, 0x02),
  address_unknown = ProtoField.bool("bluebridge.address_unknown", "Address unknown", 8, nil, 0x04),
  address_is_offset =
    ProtoField.bool("bluebridge.address_is_offset", "Address is offset in BAR", 8, nil, 0x08),
  purpose = ProtoField.uint8("bluebridge.purpose", "Purpose", base.DEC, PURPOSES),
  bar = ProtoField.uint8("bluebridge.bar", "BAR"),
  bar_offset = ProtoField.uint64("bluebridge.bar_offset", "Offset in BAR", base.HEX),
  name_length = ProtoField.uint8("bluebridge.name_length", "Name length"),
  stores = ProtoField.uint32("bluebridge.stores", "Events of the access"),
  object = ProtoField.uint32("bluebridge.object", "Object", base.HEX),
  event = ProtoField.uint64("bluebridge.event", "Event"),
  last_event = ProtoField.uint64("bluebridge.last_event", "Last event"),
  base_address = ProtoField.uint64("bluebridge.base", "Base", base.HEX),
  length = ProtoField.uint32("bluebridge.length", "Bytes of the access"),
  kept = ProtoField.uint32("bluebridge.kept", "Bytes kept"),
  offset = ProtoField.uint32("bluebridge.offset", "Offset in the access"),
  func = ProtoField.string("bluebridge.function", "Function"),
  text = ProtoField.string("bluebridge.text", "Text"),
}
local t = {
  fmt = ProtoField.uint32("tlp.fmt", "Fmt", base.HEX, FORMATS, 0xe0000000),
  type = ProtoField.uint32("tlp.type", "Type", base.HEX, TYPE_NAMES, 0x1f000000),
  tc = ProtoField.uint32("tlp.tc", "Traffic class", base.DEC, nil, 0x00700000),
  id_ordering = ProtoField.bool("tlp.id_ordering", "ID-based ordering", 32, nil, 0x00040000),
  hints = ProtoField.bool("tlp.hints", "Processing hints", 32, nil, 0x00010000),
  digest = ProtoField.bool("tlp.digest", "Digest", 32, nil, 0x00008000),
  poisoned = ProtoField.bool("tlp.poisoned", "Poisoned", 32, nil, 0x00004000),
  relaxed = ProtoField.bool("tlp.relaxed_ordering", "Relaxed ordering", 32, nil, 0x00002000),
  no_snoop = ProtoField.bool("tlp.no_snoop", "No snoop", 32, nil, 0x00001000),
  at = ProtoField.uint32("tlp.address_type", "Address type", base.DEC, nil, 0x00000c00),
  length = ProtoField.uint32("tlp.length", "Length", base.DEC, nil, 0x000003ff),
  name = ProtoField.string("tlp.name", "Packet"),
  requester = ProtoField.uint16("tlp.requester", "Requester ID", base.HEX),
  tag = ProtoField.uint8("tlp.tag", "Tag", base.HEX),
  last_enables = ProtoField.uint8("tlp.last_be", "Last byte enables", base.HEX, nil, 0xf0),
  first_enables = ProtoField.uint8("tlp.first_be", "First byte enables", base.HEX, nil, 0x0f),
  address = ProtoField.uint64("tlp.address", "Address", base.HEX),
  target = ProtoField.uint16("tlp.target", "Target ID", base.HEX),
  register = ProtoField.uint32("tlp.register", "Register", base.HEX, nil, 0x00000fff),
  completer = ProtoField.uint16("tlp.completer", "Completer ID", base.HEX),
  status = ProtoField.uint16("tlp.status", "Status", base.DEC, STATUSES, 0xe000),
  byte_count = ProtoField.uint16("tlp.byte_count", "Byte count", base.DEC, nil, 0x0fff),
  lower = ProtoField.uint8("tlp.lower_address", "Lower address", base.HEX, nil, 0x7f),
  bytes = ProtoField.uint32("tlp.bytes", "Bytes enabled"),
  data = ProtoField.bytes("tlp.data", "Data"),
  request_in = ProtoField.framenum("tlp.request_in", "Request", base.NONE, frametype.REQUEST),
  completion_in =
    ProtoField.framenum("tlp.completion_in", "Completion", base.NONE, frametype.RESPONSE),
}
shell.fields = p
tlp.fields = t
local damaged = ProtoExpert.new(
  "bluebridge.damaged", "Damaged, or cut short in its header",
  expert.group.UNDECODED, expert.severity.WARN)
shell.experts = { damaged }

local HEAD = 52  -- bytes of the pseudo-header in front of the function's name

-- Requests without their last completion by function, direction and tag; frames of both.
local outstanding, request_of, completions_of

function shell.init()
  outstanding, request_of, completions_of = {}, {}, {}
end

-- Bits high..low of an unsigned number; by arithmetic, since Lua 5.2 has no operators for bits.
local function bits(value, high, low)
  return math.floor(value / 2 ^ low) % 2 ^ (high - low + 1)
end

local function lowest(enables)
  for number = 0, 3 do
    if bits(enables, number, number) == 1 then return number end
  end
  return 0
end

local function enabled_bytes(dwords, first, last)
  local count = 0
  for number = 0, 3 do
    count = count + bits(first, number, number) + bits(last, number, number)
  end
  return dwords < 2 and count or count + 4 * (dwords - 2)
end

-- Remember a request, or find that of a completion; only in the first pass over the packets.
local function link(frame, key, is_request, ends)
  if is_request then
    outstanding[key] = frame
    completions_of[frame] = {}
  elseif outstanding[key] then
    request_of[frame] = outstanding[key]
    table.insert(completions_of[outstanding[key]], frame)
    if ends then outstanding[key] = nil end
  end
end

local function show_links(frame, tree)
  if request_of[frame] then tree:add(t.request_in, request_of[frame]):set_generated() end
  for _, number in ipairs(completions_of[frame] or {}) do
    tree:add(t.completion_in, number):set_generated()
  end
end

local function place(head, address)
  if head.address_unknown then return "?" end
  if head.bar ~= NO_BAR then
    return string.format("BAR%d+0x%s", head.bar, (address - head.base):tohex():gsub("^0+(.)", "%1"))
  end
  return "0x" .. address:tohex():gsub("^0+(.)", "%1")
end

local function first_dword(tvb, tree)
  local word = tvb(0, 4)
  for _, name in ipairs({
    "fmt", "type", "tc", "id_ordering", "hints", "digest", "poisoned", "relaxed", "no_snoop",
    "at", "length",
  }) do
    tree:add(t[name], word)
  end
end

local function memory(tvb, tree, head, dwords, wide)
  tree:add(t.requester, tvb(4, 2))
  tree:add(t.tag, tvb(6, 1))
  tree:add(t.last_enables, tvb(7, 1))
  tree:add(t.first_enables, tvb(7, 1))
  local first, last = tvb(7, 1):bitfield(4, 4), tvb(7, 1):bitfield(0, 4)
  local range = wide and tvb(8, 8) or tvb(8, 4)
  local address = (wide and range:uint64() or UInt64(range:uint())) + lowest(first)
  local shown = tree:add(t.address, range, address)
  if head.address_unknown then
    shown:append_text(" (not known: the log has no MSI-X table)")
  end
  if head.bar ~= NO_BAR then
    tree:add(p.bar_offset, range, address - head.base):set_generated()
  end
  local bytes = enabled_bytes(dwords, first, last)
  tree:add(t.bytes, tvb(7, 1), bytes):set_generated()
  return string.format("%s %d bytes", place(head, address), bytes)
end

local function config(tvb, tree)
  tree:add(t.requester, tvb(4, 2))
  tree:add(t.tag, tvb(6, 1))
  tree:add(t.last_enables, tvb(7, 1))
  tree:add(t.first_enables, tvb(7, 1))
  tree:add(t.target, tvb(8, 2))
  tree:add(t.register, tvb(8, 4))
  local first = tvb(7, 1):bitfield(4, 4)
  local bytes = enabled_bytes(1, first, 0)
  tree:add(t.bytes, tvb(7, 1), bytes):set_generated()
  return string.format("0x%x %d bytes", tvb(8, 4):bitfield(20, 12) + lowest(first), bytes)
end

-- Returns the text, and whether this is the request's last completion.
local function completion(tvb, tree, dwords)
  tree:add(t.completer, tvb(4, 2))
  tree:add(t.status, tvb(6, 2))
  tree:add(t.byte_count, tvb(6, 2))
  tree:add(t.requester, tvb(8, 2))
  tree:add(t.tag, tvb(10, 1))
  tree:add(t.lower, tvb(11, 1))
  if tvb(0, 1):uint() ~= 0x4a then return "", true end
  local there = 4 * dwords - tvb(11, 1):bitfield(6, 2)
  local remaining = (tvb(6, 2):bitfield(4, 12) - 1) % 4096 + 1
  return string.format("%d of %d bytes", math.min(there, remaining), remaining), remaining <= there
end

-- A TLP; returns what the information column says of it.
local function dissect_tlp(tvb, pinfo, root, head)
  if tvb:captured_len() < 4 then
    root:add(tlp, tvb()):add_proto_expert_info(damaged)
    return "header cut short"
  end
  local kind = tvb(0, 1):uint()
  local name = TYPES[kind]
  local wide, with_data = bits(kind, 5, 5) == 1, bits(kind, 6, 6) == 1
  local dwords = (tvb(0, 4):bitfield(22, 10) - 1) % 1024 + 1
  local tree = root:add(tlp, tvb(), "PCI Express TLP: " .. (name or "unknown"))
  first_dword(tvb, tree)
  if not name then return string.format("type 0x%02x", kind) end
  tree:add(t.name, tvb(0, 1), name):set_generated()
  local answers, size = bits(kind, 4, 0) == 0x0a, wide and 16 or 12
  if tvb:captured_len() < size then
    tree:add_proto_expert_info(damaged)
    return name .. " header cut short"
  end
  local text, tag, ends
  if answers then
    text, ends = completion(tvb, tree, dwords)
    tag = tvb(10, 1):uint()
  elseif bits(kind, 4, 0) == 0x04 then
    text, tag = config(tvb, tree), tvb(6, 1):uint()
  else
    text, tag = memory(tvb, tree, head, dwords, wide), tvb(6, 1):uint()
  end
  local posted = not answers and name:sub(1, 3) == "MWr"
  if not posted then
    -- Requests and completions of one exchange go in opposite ways of the bus but are one access.
    local key = string.format("%s %s %d", head.name, head.upstream, tag)
    if not pinfo.visited then link(pinfo.number, key, not answers, ends) end
    show_links(pinfo.number, tree)
    text = string.format("%s tag 0x%02x", text, tag)
  end
  if with_data and tvb:captured_len() > size then
    local there = math.min(tvb:captured_len(), tvb:reported_len()) - size
    tree:add(t.data, tvb(size, there))
  end
  return (name .. " " .. text):gsub("  +", " ")
end

local function purpose_of(head)
  local text = PURPOSES[head.purpose] or "other"
  if OBJECTS[head.purpose] then
    return string.format("%s, %s 0x%x", text, OBJECTS[head.purpose], head.object)
  elseif head.address_unknown and head.purpose == 9 then
    return string.format("%s, vector %d", text, head.object)
  end
  return text
end

-- The pseudo-header of a packet whose lengths `is_whole` has checked.
local function dissect_head(tvb, tree)
  local head = {
    length = tvb(1, 1):uint(), content = tvb(2, 1):uint(), flags = tvb(3, 1):uint(),
    purpose = tvb(4, 1):uint(), bar = tvb(5, 1):uint(), object = tvb(12, 4):uint(),
    base = tvb(32, 8):uint64(),
    name = tvb:raw(HEAD, tvb(6, 1):uint()),
  }
  head.upstream = bits(head.flags, 0, 0) == 1
  head.address_unknown = bits(head.flags, 2, 2) == 1
  tree:add(p.version, tvb(0, 1))
  tree:add(p.header_length, tvb(1, 1))
  tree:add(p.content, tvb(2, 1))
  local flags = tree:add(p.flags, tvb(3, 1))
  for _, name in ipairs({ "upstream", "id_unknown", "address_unknown", "address_is_offset" }) do
    flags:add(p[name], tvb(3, 1))
  end
  tree:add(p.purpose, tvb(4, 1))
  if head.bar ~= NO_BAR then tree:add(p.bar, tvb(5, 1)) end
  tree:add(p.name_length, tvb(6, 1))
  tree:add(p.stores, tvb(8, 4))
  tree:add(p.object, tvb(12, 4))
  tree:add(p.event, tvb(16, 8))
  tree:add(p.last_event, tvb(24, 8))
  tree:add(p.base_address, tvb(32, 8))
  tree:add(p.length, tvb(40, 4))
  tree:add(p.kept, tvb(44, 4))
  tree:add(p.offset, tvb(48, 4))
  if #head.name > 0 then tree:add(p.func, tvb(HEAD, #head.name)) end
  return head
end

-- Whether name and content are where the pseudo-header says.
local function is_whole(tvb)
  local length = tvb(1, 1):uint()
  return HEAD + tvb(6, 1):uint() <= length and length <= tvb:captured_len()
end

function shell.dissector(tvb, pinfo, root)
  if tvb:captured_len() < HEAD or tvb(0, 1):uint() ~= 1 then return 0 end
  if not is_whole(tvb) then
    root:add(shell, tvb()):add_proto_expert_info(damaged)
    pinfo.cols.protocol = "PCIe"
    pinfo.cols.info = "damaged pseudo-header"
    return tvb:captured_len()
  end
  local tree = root:add(shell, tvb(0, tvb(1, 1):uint()))
  local head = dissect_head(tvb, tree)
  pinfo.cols.protocol = "PCIe"
  if head.content == 2 then
    local text = ""
    if tvb:captured_len() > head.length then
      text = tvb(head.length):string()
      tree:add(p.text, tvb(head.length))
    end
    pinfo.cols.src, pinfo.cols.dst = head.name, ""
    pinfo.cols.info = string.format("%s: %s", purpose_of(head), text)
    return tvb:captured_len()
  end
  if tvb:captured_len() == head.length then
    tree:add_proto_expert_info(damaged)
    pinfo.cols.info = "no packet " .. purpose_of(head)
    return head.length
  end
  local packet = tvb(head.length):tvb()
  local info = dissect_tlp(packet, pinfo, root, head)
  local answers = bits(packet(0, 1):uint(), 4, 0) == 0x0a
  local from_function = head.upstream ~= answers
  pinfo.cols.src = from_function and head.name or "host"
  pinfo.cols.dst = from_function and "host" or head.name
  pinfo.cols.info = string.format("%s %s", info, purpose_of(head))
  return tvb:captured_len()
end
