local _, flaw, field = holder_of(key)
if not field then
    return flaw or {number, {0, now}}
end
if #field > 256 then
    -- holder_of does not check the form of a field of more than 256 bytes. Such a field is deleted only if it looks like a
    -- visitor.
    local begin, rest = string.sub(field, 1, 256), string.sub(field, -256)
    if not (string.find(rest, '.:%d+$') or string.find(rest, '.:%d+:.') or string.find(begin, '.:%d+:.')) then
        return redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
    end
end
call('HDEL', key, field)
