-- Removes the hold of whoever has the lock.
local _, flaw, field = holder_of(key)
if not field then
    return flaw or {number, {0, now}}
end
if #field > 256 then
    -- One that is not looked into is refused to others, but freed only if it looks like a visitor.
    local begin, rest = string.sub(field, 1, 256), string.sub(field, -256)
    if not (string.find(rest, '.:%d+$') or string.find(rest, '.:%d+:.') or string.find(begin, '.:%d+:.')) then
        return redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
    end
end
call('HDEL', key, field)
