-- Runs commands or a script of the user, if the visitor holds the lock, or if no larger fencing token (fence) was seen.
--
-- KEYS[1]  the lock; or the key of the largest fence seen
-- KEYS[i]  the keys of the commands
-- ARGV[1]  the visitor, or the fence
-- ARGV[2]  'token' for a token lock, 'read' or 'write' for a side of a read-write lock, 'fence' for a fence
-- ARGV[at]  the commands, each as its number of words and its words; or the arguments of the script
-- ARGV[#ARGV-1]  the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, replies}  done
--         {2, now, holder}   the visitor has no hold; holder is the holder of the lock, '' if the lock is free
--         {3, now}           too late, nothing was done
--         {7, now, index, error, replies}  the command with this index, counted from 0, failed, or its reply is too
--           large; replies are the replies to all earlier commands
--         {8, now, fence}    a larger fence was seen; nothing was done
--
-- Keeps: no other client's command runs between the check and the commands. Replies are limited in size.

-- The client replaces the next line by the user's script, which becomes a function with its own KEYS and ARGV.
local script = nil

-- include holder_of.lua

-- include side_holder.lua

-- Returns the holder of a read-write lock; '' if the lock is free; a text if the hash is no read-write lock.
local function holder_of_sides(key)
    if redis.call('HGET', key, 'mode') then
        return side_holder_of(key)
    end
    return holder_of(key) == '' and '' or 'a key of another type'
end

local number, key, visitor, kind = ARGV[#ARGV] + 0, KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[#ARGV - 1] + 0 then
    return {number, {3, now}}
end
if kind == 'fence' then
    local seen = redis.call('GET', key) or '0'
    seen = string.match(seen, '^0*(%d+)$')
    if not seen or #seen > 20 then
        return redis.error_reply('WRONGTYPE this key keeps no fence')
    elseif #seen > #visitor or #seen == #visitor and seen > visitor then
        return {number, {8, now, seen}}
    elseif seen ~= visitor then
        redis.call('SET', key, visitor)
    end
elseif kind == 'token' then
    local holder = redis.pcall('GET', key)
    if type(holder) == 'table' then
        return string.find(holder.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or holder
    elseif holder ~= visitor then
        return {number, {2, now, string.sub(holder or '', 1, 64)}}
    end
else
    local has = redis.pcall('HEXISTS', key, visitor)
    if type(has) == 'table' then
        return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or has
    elseif has == 0 then
        local is_side = kind == 'read' or kind == 'write'
        return {number, {2, now, is_side and holder_of_sides(key) or holder_of(key) or 'a key of another type'}}
    end
end

-- With `redis.setresp(3)`, a RESP3 reply is a table with one of these fields.
local FORMS = {'map', 'set', 'double', 'big_number', 'verbatim_string'}

-- Returns an upper bound for the size of an encoded reply, in bytes. Infinite for more than 8 levels of nested tables.
local function size_of(reply, depth)
    if type(reply) ~= 'table' then
        return type(reply) == 'string' and #reply + 16 or 24
    elseif depth > 8 then
        return math.huge
    end
    local size = 16 + #tostring(reply.ok or reply.err or '')
    for _, part in ipairs(reply) do
        size = size + size_of(part, depth + 1)
    end
    for _, form in ipairs(FORMS) do
        local parts = reply[form]
        for name, part in pairs(type(parts) == 'table' and parts or {parts}) do
            size = size + size_of(name, depth + 1) + size_of(part, depth + 1)
        end
    end
    return size
end

-- Adds a reply of the user's commands or script to `replies`. If it is an error or too large, returns the reason.
local replies, room = {}, 1040000
local function keep(reply)
    if type(reply) == 'table' and reply.err then
        return string.sub(tostring(reply.err), 1, 512)
    end
    room = room - size_of(reply, 1)
    if room == -math.huge then
        return 'ERR the command took effect, but its reply is nested too deep'
    elseif room < 0 then
        return 'ERR the command took effect, but with its reply the replies exceed 1 MiB'
    end
    replies[#replies + 1] = reply
end

local flaw
if script then
    local keys, args = {}, {}
    for i = 2, #KEYS do
        keys[i - 1] = KEYS[i]
    end
    for at = 3, #ARGV - 2 do
        args[at - 2] = ARGV[at]
    end
    local is_done, reply = pcall(script, keys, args)
    if not is_done then
        reply = {err = type(reply) == 'table' and reply.err or tostring(reply)}
    elseif reply == nil then
        reply = false
    end
    -- The reply may be a table of the user, whose metatable may run code.
    local is_kept, why = pcall(keep, reply)
    if not is_kept then
        why = string.sub(tostring(type(why) == 'table' and rawget(why, 'err') or why), 1, 512)
    end
    flaw = why
else
    local at, last = 3, #ARGV - 2
    while at <= last and not flaw do
        local words = ARGV[at]
        local reply = redis.pcall(unpack(ARGV, at + 1, at + words))
        flaw = keep(reply)
        at = at + words + 1
    end
end
-- Whether a replica sent this error. Redis before 7 puts the name of the script and the line number before the error.
local function is_read_only(text)
    return string.find(text, '^READONLY ') or string.find(text, '^@user_script: %d+: %-READONLY ')
end

if flaw and string.find(flaw, 'READONLY', 1, true) then
    -- The text READONLY may come from the user's script, so a probe follows. Only a replica refuses the probe with
    -- READONLY. A master refuses the probe because its last argument is invalid.
    local probe = kind == 'fence' and redis.pcall('SET', key, '', 'PX', '') or redis.pcall('PEXPIRE', key, '')
    if is_read_only(probe.err) then
        -- A replica refuses every write, so nothing was written. The client may send the request to the master.
        return redis.error_reply('READONLY this server is a replica')
    end
end
if flaw then
    return {number, {7, now, #replies, flaw, replies}}
end
return {number, {1, now, replies}}
