-- How sponsors share the places of a vendor: start-time fair queueing, kept beside the windows. Stands before window.lua.
--
-- An asker (a group of streams of a process) says for which sponsors it asks, with the weight of each and how many places
-- it wants. If it is given less, what it will want next stays noted until it was told to come back, and GRACE longer. So each question knows who
-- else waits. Free places are divided among all who wait; the asker gets its sponsors' parts, and the others are kept for
-- those who come in the same moment. Who does not come loses them: nothing is kept for the dead, or for one without a free
-- connection.
--
-- A sponsor's virtual time grows by the places it is given, divided by its weight. Places go to those with the least, as
-- water fills a vessel. The clock is the least virtual time of those who wait; if nobody does, of the one served last. A
-- sponsor that comes back starts there: it has saved nothing up. One that was here a moment ago (SEEN) may be behind by
-- what it asked for then, so that coming late costs nothing. While only one sponsor is here, no virtual times are kept.
--
-- Ranks, the classes of mail, come before weights: who has a lower one is served first. Each rank has virtual times and a
-- clock of its own, so the `sponsor` of an ask is one in its rank. The floor keeps the other ranks alive: while one of them
-- waits, it saves up so many percent of the places given to anybody, and what it has saved is given to it before all others.
-- Within a sponsor the turns of window.lua hold.
local shares = KEYS[1]:gsub('window$', 'shares')
local GRACE, SEEN = 50000, 2000000
local HELD_LEAST, AWAY = 5000, 5000000  -- who is told to wait for longer than AWAY does not stay
local ASKS = 100  -- at most: all are read each time
local MOST_SAVED, AWAY_SAVED = 64, 1  -- places of a rank that waits, and of one that does not
local LASTING = 60000  -- milliseconds that virtual times are kept, beyond twice the longest window

-- Appends to `found` what an asker wants: "rank:sponsor:weight:want:more ...", from an asker after "f" and its floor. more:
-- what it could use next.
local function add_asks(found, text, fields)
  for rank, sponsor, weight, want, more in text:gmatch('(%d+):(%d+):(%d+):(%d+):(%d+)') do
    local ask = { rank = tonumber(rank), sponsor = rank .. ':' .. sponsor, id = sponsor, weight = tonumber(weight) }
    ask.want, ask.more = tonumber(want), tonumber(more)
    for name, value in pairs(fields) do ask[name] = value end
    found[#found + 1] = ask
  end
end

-- Who shares the vendor now. An ask that ends too late is one from before a clock was set.
-- `own`: the asks of this asker, `others`: those that are noted; `given`: virtual times.
-- want: of an asker with one sponsor, which may want less than it says. nil if it asks for nobody.
local function shares_of(asker, wants, credential, late, want)
  if wants == '' then return nil end
  local found = { late = late, asker = asker, credential = credential, clocks = {}, saved = {}, needs = {}, asks = 0 }
  found.floor = tonumber(wants:match('^f(%d+)') or 0)
  found.parts, found.kept, found.promised = {}, {}, {}
  local own, others, given, gone, rows = {}, {}, {}, {}, redis.call('HGETALL', shares)
  add_asks(own, wants, {})
  if #own == 1 then own[1].want = want end
  for i = 1, #rows, 2 do
    local kind, name, value = rows[i]:sub(1, 1), rows[i]:sub(2), rows[i + 1]
    if kind == 'a' then
      local till, narrow, of, text = value:match('^(%d+) (%d) (%S+) (.*)$')
      local fields = { till = tonumber(till), narrow = narrow == '1', credential = of }
      if fields.till < late or fields.till > late + 2 * AWAY then gone[#gone + 1] = rows[i]
      elseif name == asker then found.noted = true
      else add_asks(others, text, fields) end
      found.asks = found.asks + 1
    elseif kind == 's' then
      local units, seen, want = value:match('^(%S+) (%d+) (%d+)$')
      given[name] = { units = tonumber(units), seen = tonumber(seen), want = tonumber(want) }
    elseif kind == 'f' then
      local saved, need = value:match('^(%S+) (%d+)$')
      found.saved[tonumber(name)], found.needs[tonumber(name)] = tonumber(saved), tonumber(need)
    elseif name:match('%d') then
      found.clocks[tonumber(name:match('%d+'))] = tonumber(value)
    end
  end
  found.own, found.others, found.given, found.gone = own, others, given, gone
  found.alone = true
  for _, ask in ipairs(own) do found.alone = found.alone and ask.sponsor == own[1].sponsor end
  for _, ask in ipairs(others) do found.alone = found.alone and ask.sponsor == own[1].sponsor end
  for sponsor in pairs(given) do found.alone = found.alone and sponsor == own[1].sponsor end
  return found
end

-- Notes with each ask the virtual time of its sponsor.
local function find_starts(sharing)
  local waits = {}
  for _, ask in ipairs(sharing.others) do waits[ask.sponsor] = true end
  for _, asks in ipairs({ sharing.own, sharing.others }) do
    for _, ask in ipairs(asks) do
      local row, start = sharing.given[ask.sponsor], sharing.clocks[ask.rank] or 0
      if row then
        local here = sharing.noted or waits[ask.sponsor] or sharing.late - row.seen <= SEEN
        if here then start = start - row.want / ask.weight end
        start = math.max(start, row.units)
      end
      ask.start = start
    end
  end
end

-- Divides `free` places among demands of one rank: each gets a `part`, up to the level of virtual time at which they are
-- used up. What cannot be divided goes one by one to those who are behind; among equals, to the one named first.
local function fill_level(free, demands)
  local open = {}
  for place, one in ipairs(demands) do
    one.part, one.place = 0, place
    if one.want > 0 then open[#open + 1] = one end
  end
  table.sort(open, function(one, other)
    return one.start < other.start or one.start == other.start and one.place < other.place
  end)
  local level, full = 0, true
  while full and free > 0 and #open > 0 do
    local weights, sum = 0, 0
    for i, one in ipairs(open) do
      if i > 1 and one.start >= level then break end
      weights, sum = weights + one.weight, sum + one.start * one.weight
      level = (free + sum) / weights
    end
    local rest = {}
    full = false
    for _, one in ipairs(open) do
      if (level - one.start) * one.weight >= one.want then one.part, full = one.want, true else rest[#rest + 1] = one end
    end
    for _, one in ipairs(open) do
      if one.part == one.want then free = free - one.want end
    end
    open = rest
  end
  for _, one in ipairs(free > 0 and open or {}) do
    one.part = math.max(0, math.floor((level - one.start) * one.weight + 1e-6))
  end
  for _, one in ipairs(open) do free = free - one.part end
  while free > 0 do
    local first
    for _, one in ipairs(open) do
      one.at = one.start + one.part / one.weight
      local sooner = not first or one.at < first.at - 1e-9 or one.at < first.at + 1e-9 and one.place < first.place
      if one.part < one.want and sooner then first = one end
    end
    if not first then break end
    first.part, free = first.part + 1, free - 1
  end
  return free
end

-- Gives a rank what it has saved up of the floor, once that is as much as a letter of its last asker needs. `left_over`:
-- places that it leaves if one letter does not need them. Answers how many places it is given.
local function fill_floor(sharing, rank, free, demands, left_over)
  local need = sharing.needs[rank] or 1
  local most = math.max(math.min(free, need), free - left_over)
  local places = math.min(most, math.floor((sharing.saved[rank] or 0) + 1e-6))
  if sharing.floor == 0 or places < need then return 0 end
  local rest = fill_level(places, demands)
  for _, one in ipairs(demands) do
    one.saved, one.want, one.start = one.part, one.want - one.part, one.start + one.part / one.weight
  end
  return places - rest
end

-- Divides the free places of the vendor, or of the asker's credential, and lowers the parts of its asks to theirs. Who
-- waits for the limit of another credential could not use a place of the vendor.
local function divide_at(sharing, key, free, within_credential)
  local ranks, by_rank, known = {}, {}, {}
  local function add(ask, own)
    local demand = known[ask.sponsor]
    if not demand then
      local start = ask.start - (sharing.clocks[ask.rank] or 0)
      demand = { rank = ask.rank, start = start, weight = ask.weight, want = 0, sponsor = ask.sponsor }
      known[ask.sponsor] = demand
      if not by_rank[ask.rank] then
        by_rank[ask.rank], ranks[#ranks + 1] = {}, ask.rank
      end
      table.insert(by_rank[ask.rank], demand)
    end
    demand.want, demand.own = demand.want + ask.want, demand.own or own
    return demand
  end
  local mine = {}
  for i, ask in ipairs(sharing.own) do mine[i] = add(ask, true) end
  for _, ask in ipairs(sharing.others) do
    if ask.credential == sharing.credential or not (within_credential or ask.narrow) then
      add(ask, false)
      sharing.till = math.min(sharing.till or ask.till, ask.till)
    end
  end
  table.sort(ranks)
  local left, kept, left_over = free, 0, 0
  -- Others save up again with each place that is given. Without this they may take the last places of every window,
  -- and the last letter of the first rank waits for as long as they have mail.
  for _, demand in ipairs(by_rank[ranks[1]]) do if demand.want > 0 then left_over = 1 end end
  for n = #ranks, 2, -1 do left = left - fill_floor(sharing, ranks[n], left, by_rank[ranks[n]], left_over) end
  for _, rank in ipairs(ranks) do left = fill_level(left, by_rank[rank]) end
  for _, demand in pairs(known) do
    demand.part, demand.want = demand.part + (demand.saved or 0), demand.want + (demand.saved or 0)
  end
  for name, demand in pairs(known) do
    kept = kept + demand.part
    if not demand.own then
      local promised = sharing.promised[name] or { part = math.huge, want = 0 }
      promised.part, promised.want = math.min(promised.part, demand.part), math.max(promised.want, demand.want)
      sharing.promised[name] = promised
    end
  end
  for i, ask in ipairs(sharing.own) do
    local part = math.min(mine[i].part - (mine[i].taken or 0), ask.want)
    mine[i].taken = (mine[i].taken or 0) + part  -- two of its streams may know different weights for a moment
    kept, ask.part = kept - part, math.min(ask.part, part)
    for _, demand in pairs(known) do  -- whether its turn has come, even for more than its part
      local sooner = demand.rank == ask.rank and demand.start < mine[i].start
      if demand.rank ~= ask.rank then
        local saved, of_mine = (demand.saved or 0) > 0, (mine[i].saved or 0) > 0
        sooner = saved and not of_mine or saved == of_mine and demand.rank < ask.rank
      end
      if sooner and demand.want > 0 then ask.behind = false end
    end
  end
  sharing.kept[key] = kept
end

-- The asker's part of so many free places, of which all asks get `want` at most; 0 if it is less than `least`.
-- `parts`: of each of its asks. A letter that needs several places gets them if nobody is further behind.
local function divide_free(sharing, vendor, credential, free, want, least)
  local own, total = sharing.own, 0
  if sharing.alone and #own == 1 then
    sharing.parts[1] = want
    return want
  end
  find_starts(sharing)
  for _, ask in ipairs(own) do sharing.needs[ask.rank] = #own == 1 and math.max(1, least) or 1 end
  for _, ask in ipairs(own) do ask.part, ask.behind = ask.want, true end
  if free[vendor] < math.huge then divide_at(sharing, vendor, free[vendor], false) end
  if free[credential] < math.huge then divide_at(sharing, credential, free[credential], true) end
  if #own == 1 and own[1].behind then own[1].part = math.max(own[1].part, least) end
  for i, ask in ipairs(own) do
    sharing.parts[i] = math.min(ask.part, want - total)
    total = total + sharing.parts[i]
  end
  return total >= least and total or 0
end

-- Until one asks again: when there is more than what is kept, or when nobody has come for it.
local function until_kept(sharing, wait)
  if not sharing.till then return wait end
  for _, kept in pairs(sharing.kept) do
    if kept > 0 then return math.max(HELD_LEAST, math.min(wait, sharing.till - sharing.late)) end
  end
  return wait
end

-- Notes what each rank but the first has saved of its floor: those that wait save up.
local function save_floor(sharing, fields)
  local total, given, waits, first = 0, {}, {}, math.huge
  for _, ask in ipairs(sharing.own) do
    total, given[ask.rank] = total + ask.given, (given[ask.rank] or 0) + ask.given
    waits[ask.rank], first = waits[ask.rank] or ask.left > 0, math.min(first, ask.rank)
  end
  for _, ask in ipairs(sharing.others) do
    waits[ask.rank], first = true, math.min(first, ask.rank)
  end
  for rank in pairs(waits) do
    if rank > first and sharing.saved[rank] == nil then sharing.saved[rank] = 0 end
  end
  for rank, saved in pairs(sharing.saved) do
    local more = saved + total * sharing.floor / 100 - (given[rank] or 0)
    local most = waits[rank] and MOST_SAVED or AWAY_SAVED
    fields[#fields + 1] = 'f' .. string.format('%.0f', rank)
    fields[#fields + 1] = string.format('%.6f %.0f', math.max(0, math.min(most, more)), sharing.needs[rank] or 1)
  end
end

-- Notes what the asks were given and what they still want. narrow: only their credential has no room.
local function note_shares(sharing, wait, narrow, granted, reach)
  local unmet, fields, gone, late = {}, {}, sharing.gone, string.format('%.0f', sharing.late)
  for i, ask in ipairs(sharing.own) do
    ask.given = granted and sharing.parts[i] or 0
    ask.left = ask.want - ask.given
    if ask.left > 0 then  -- when it comes back, its calls will have ended
      local want = string.format('%.0f', math.max(ask.left, ask.more))
      unmet[#unmet + 1] = table.concat({ ask.rank, ask.id, ask.weight, want, 0 }, ':')
    end
  end
  local name = 'a' .. sharing.asker
  if #unmet > 0 and wait <= AWAY and (sharing.noted or sharing.asks < ASKS) then
    local till = string.format('%.0f', sharing.late + wait * 1.02 + GRACE)
    fields = { name, table.concat({ till, narrow and 1 or 0, sharing.credential, table.concat(unmet, ' ') }, ' ') }
  elseif sharing.noted then
    gone[#gone + 1] = name
  end
  if sharing.alone then
    if sharing.given[sharing.own[1].sponsor] then gone[#gone + 1] = 's' .. sharing.own[1].sponsor end
  else
    if not sharing.own[1].start then find_starts(sharing) end
    local units, wants, least, most = {}, {}, {}, {}
    for _, ask in ipairs(sharing.own) do
      units[ask.sponsor] = (units[ask.sponsor] or ask.start) + ask.given / ask.weight
      wants[ask.sponsor] = (wants[ask.sponsor] or 0) + ask.want
    end
    for _, ask in ipairs(sharing.own) do
      local virtual = units[ask.sponsor]
      if ask.left > 0 and not narrow then least[ask.rank] = math.min(least[ask.rank] or math.huge, virtual) end
      most[ask.rank] = math.max(most[ask.rank] or 0, virtual)
    end
    for _, ask in ipairs(sharing.others) do
      local promised = sharing.promised[ask.sponsor] or { part = 0, want = 1 }
      if not ask.narrow and promised.part < promised.want then
        local virtual = units[ask.sponsor] or ask.start + promised.part / ask.weight
        least[ask.rank] = math.min(least[ask.rank] or math.huge, virtual)
      end
    end
    for rank, virtual in pairs(granted and most or {}) do
      sharing.clocks[rank] = math.max(sharing.clocks[rank] or 0, least[rank] or virtual)
    end
    for rank, clock in pairs(sharing.clocks) do
      fields[#fields + 1], fields[#fields + 2] = 'clock' .. string.format('%.0f', rank), string.format('%.6f', clock)
    end
    save_floor(sharing, fields)
    for sponsor, virtual in pairs(units) do
      local row = { string.format('%.6f', virtual), late, string.format('%.0f', wants[sponsor]) }
      fields[#fields + 1], fields[#fields + 2] = 's' .. sponsor, table.concat(row, ' ')
    end
    for sponsor, row in pairs(sharing.given) do
      local clock = sharing.clocks[tonumber(sponsor:match('^%d+'))] or 0
      if not units[sponsor] and row.units <= clock and sharing.late - row.seen > SEEN then
        gone[#gone + 1] = 's' .. sponsor
      end
    end
  end
  if #gone > 0 then redis.call('HDEL', shares, unpack(gone)) end
  if #fields > 0 then
    redis.call('HSET', shares, unpack(fields))
    redis.call('PEXPIRE', shares, string.format('%.0f', LASTING + 2 * reach / 1000))
  end
end

