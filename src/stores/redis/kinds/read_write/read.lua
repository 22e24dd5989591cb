-- Takes a read-write lock to read, or enters it once more.
--
-- KEYS[1]  the lock: a hash of its mode, and of the visitors with their hold counts
-- KEYS[2]  the time key of the visitor
-- KEYS[3]  the notes on those who wait to write
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the writer inside whose hold it reads, '' for none
-- ARGV[6]  the memo of the last refusal, behind which writer it comes; '' for none; '*' to come in whoever waits to write
-- ARGV[7]  how long the visitor needs to come, if it waits, ms; 0 if it does not wait
-- ARGV[8]  the server time after which the request is refused, ms since 1970
-- ARGV[9]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua: a number granted, {0, now, ttl, holder, memo} refused, {2, now, holder} gone, {3, now} too late,
--         {4, now, count} another count
--
-- Keeps: no hold is there without an end. A copy of the first request changes no count, and shortens nothing. What a full
-- server refuses comes first, and what fails behind it is undone.

-- include sides.lua
-- include phases.lua

local number, expiry = ARGV[#ARGV] + 0, ARGV[8] + 0
local call, pcall, key, own, visitor, lease = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local known, wanted, inside, notes, memo, need = ARGV[3], ARGV[4], ARGV[5], KEYS[3], ARGV[6], ARGV[7] + 0
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end
local granted = number * 4194304 + math.min(expiry - now, 4194303)

if known ~= '0' then
    local count = pcall('HGET', key, visitor)
    if type(count) == 'table' then
        return string.find(count.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or count
    elseif not count or is_over(key, own, visitor) then
        return {number, {2, now, not count and holder_of(key) or ''}}
    elseif count ~= known and count ~= wanted then
        return {number, {4, now, string.sub(count, 1, 32)}}
    end
    prolong(key, lease)
    call('HSET', key, visitor, wanted)
    lengthen(own, lease)
    return granted
end

local mode, flaw = mode_of(key)
if flaw then
    return flaw
end
if not mode or mode == 'read' or inside ~= '' and call('HEXISTS', key, inside) == 1 then
    local is_new, others = call('HEXISTS', key, visitor) == 0, nil
    if is_new and mode ~= 'write' and memo ~= '*' then
        -- A reader is turned away in the phase in which it first asked, and once, but not from a free lock that is kept for readers.
        local writer, came
        writer, others, came = first_writer(notes, now)
        local behind = phase_of(others) + 1
        local is_turned = writer and (memo == '' or tonumber(memo) == behind)
        is_turned = is_turned and (mode or window_of(others, now) == 0)
        if is_turned and memo ~= '' and now * 1000 - came > 3000000 then
            -- Where readers of Redisson come in whoever waits, to wait on for the writer that they keep out is of no use.
            for _, field in ipairs(call('HKEYS', key)) do
                is_turned = is_turned and not string.find(field, '^[^:]+:%d+$')
            end
        end
        if is_turned then
            turn_away(notes, others, need, behind, memo)
            return {number, {0, now, 1000, string.sub(writer, 1, 128), string.format('%.0f', behind)}}
        end
    end
    if mode == 'write' and is_new then
        -- From now on the hash lasts as long as both, and only time keys tell how long each of them does. That of a writer that is
        -- over does not come back.
        local writers = prefix_of(own, visitor) .. inside .. ':rwlock_timeout:1'
        if not is_over(key, writers, inside) and call('EXISTS', writers) == 0 then
            call('SET', writers, 1, 'PX', math.max(call('PTTL', key), 1))
        end
    end
    local ends, lasts = call('PTTL', own), call('PTTL', key)
    if not mode then
        call('HSET', key, 'mode', 'read', visitor, wanted)
    elseif is_new then
        call('HSET', key, visitor, wanted)
    end
    local set = ends < lease + 0 and pcall('SET', own, 1, 'PX', lease)
    if not (type(set) == 'table' and set.err) then
        set = lasts < lease + 0 and pcall('PEXPIRE', key, lease)
    end
    if not (type(set) == 'table' and set.err) then
        if others and need > 0 and tonumber(memo) then
            has_come(notes, others, memo + 0)
        end
        return granted
    end
    if is_new then
        pcall('DEL', own)
        -- A user without the right to the one may have the right to the other.
        if mode or pcall('DEL', key) ~= 1 then
            pcall('HDEL', key, visitor)
            if not mode then
                pcall('HDEL', key, 'mode')
            end
        end
    end
    return set
end
local told = '-'
if need > 0 then
    local _, others = first_writer(notes, now)
    local behind = phase_of(others)
    turn_away(notes, others, need, behind, memo)
    told = string.format('%.0f', behind)
end
return {number, {0, now, call('PTTL', key), holder_of(key), told}}
