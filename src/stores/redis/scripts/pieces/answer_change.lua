-- Answers by the reply to what changed, and sends the message if there is one.
if type(done) == 'table' and done.err then
    -- A user without the right to it may ask again.
    pcall('DEL', KEYS[2])
    return done
end
keep_taken(taken, key, pcall('PTTL', key))
if message then
    pcall('PUBLISH', ARGV[3], message)
end
return {number, {1, now, answer}}
