-- A part of acquire: nothing is written if the precheck refuses the request.
WHERE NOT EXISTS (SELECT FROM seen)
