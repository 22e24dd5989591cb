if type(done) == 'table' and done.err then
    -- The change failed, for example for lack of a right. The stored reply is deleted, so that the user can send the
    -- request again.
    pcall('DEL', KEYS[2])
    return done
end
keep_taken(taken, key, pcall('PTTL', key))
if message then
    pcall('PUBLISH', ARGV[3], message)
end
return {number, {1, now, answer}}
